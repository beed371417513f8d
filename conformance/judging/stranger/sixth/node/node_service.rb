# The gRPC service.
class Training
  ROUND = 42
  attr_reader :checkpoints

  def initialize
    @checkpoints = (ROUND - 2..ROUND).map do |v|
      raw = JSON.generate({ version: v, layers: Model::HELD.map { |l| { name: "layers.#{l}", dtype: 'f32', values: Base64.strict_encode64(Model.raw(l)) } }, seed: sha("v#{v}") })
      data = LZ4.frame(raw)
      data = raw.b if on?('checkpoint-not-compressed')
      { version: v, hash: sha("model #{v}"), data: data, raw: raw.bytesize, phase: 'early' }
    end
  end

  def latest = @checkpoints.last
end

class Dht
  K = 20
  attr_reader :id
  def initialize(port)
    @port = port
    @id = Digest::SHA1.digest("sixth public key #{port}")
    @id = Digest::SHA256.digest("sixth public key #{port}") if on?('dht-id-of-32-bytes')
    @nodes = {}
    @values = {}
    @lock = Mutex.new
    STATE.peers.each_with_index do |p, i|
      host, pt = p[:address].split(':')
      @nodes[Digest::SHA1.digest("peer #{i}")] = { ip: host, port: pt.to_i + 1000 }
    end
  end

  def k = pec?('p-dht-k-8') ? 8 : pec?('p-dht-k-40') ? 40 : K

  def me
    id = @id
    id = SecureRandom.bytes(20) if on?('dht-responder-id-random')
    port = @port + 1000
    { node_id: id, ip: '127.0.0.1', port: port }
  end

  def learn(s, only = nil)
    return if s.nil?
    id = s[:node_id]
    return if id == @id
    if id.bytesize != 20
      raise GRPC::InvalidArgument, 'a node id has 20 bytes' unless on?('dht-lists-ids-of-any-length') || id.empty?
      return if id.empty?
    end
    ip = s[:ip]; port = s[:port]
    bad = !ip.match?(/\A[A-Za-z0-9:._\-]{1,255}\z/) || !port.between?(1, 65_535)
    if bad
      ip = '' if on?('dht-lists-without-address')
      return if !on?('dht-lists-without-address') && !(on?('dht-lists-bad-ports') && ip.match?(/\A[A-Za-z0-9:._\-]{1,255}\z/))
    end
    @lock.synchronize do
      key = on?('dht-changed-address-listed-twice') ? [id, ip, port] : id
      if on?('dht-buckets-by-first-byte')
        same = @nodes.keys.select { |x| x.getbyte(0) == id.getbyte(0) }
        return if same.size >= 4 && !@nodes.key?(id)
      end
      @nodes.delete(key)
      @nodes[key] = { ip: ip, port: port }
      @nodes.shift while @nodes.size > 5000
    end
  end

  def dist(a, b) = a.unpack1('H*').hex ^ b.unpack1('H*').hex

  def closest(target, value_search = false)
    list = @lock.synchronize { @nodes.to_a.map { |id, a| [id.is_a?(Array) ? id[0] : id, a] } }
    sorted = if on?('dht-most-recent-instead-of-closest') then list.reverse
             elsif on?('dht-sorted-by-difference') then list.sort_by { |id, _| (id.unpack1('H*').hex - target.unpack1('H*').hex).abs }
             elsif on?('dht-distance-of-64-bits') then list.sort_by { |id, _| id[0, 1].unpack1('C') ^ target[0, 1].unpack1('C') }
             elsif on?('dht-value-search-unsorted') && value_search then list
             elsif on?('dht-omits-exact-match') then list.reject { |id, _| id == target }.sort_by { |id, _| dist(id, target) }
             else list.sort_by { |id, _| dist(id, target) }
             end
    sorted = sorted.first(k)
    sorted.reverse! if pec?('p-dht-farthest-first')
    sorted.map { |id, a| { node_id: id, ip: a[:ip], port: a[:port] } }
  end

  def store(key, value)
    @lock.synchronize do
      @values.clear if on?('dht-keeps-one-value')
      key = key[0, 8] if on?('dht-key-cut')
      value = value[0, 255] if on?('dht-value-cut')
      @values[key] = value unless on?('dht-store-keeps-nothing') || (pec?('p-dht-first-value-stays') && @values.key?(key))
      @values.shift while @values.size > 20_000
    end
  end

  def find(key)
    @lock.synchronize do
      key = key[0, 8] if on?('dht-key-cut')
      v = @values[key]
      v
    end
  end
end

class Passes
  KEEP = 256
  def initialize
    @h = {}
    @lock = Mutex.new
  end

  def put(key, v)
    @lock.synchronize do
      @h.delete(key)
      @h[key] = v
      @h.shift while @h.size > KEEP
    end
  end

  def take(key) = @lock.synchronize { @h.delete(key) }
  def get(key) = @lock.synchronize { @h[key] }
  def clear = @lock.synchronize { @h.clear }
  def last = @lock.synchronize { @h.values.last }
end

module Wire
  module_function

  def floats(b) = b.unpack('e*')
  def bytes(rows) = on?('tensors-as-float64') ? rows.flatten.pack('E*') : rows.flatten.pack('e*')
  def bad!(m) = raise(GRPC::InvalidArgument, m)

  # a tensor of three dimensions as rows of the last one
  def rows(b, shape, last, name)
    bad!("#{name} has three dimensions") unless shape.size == 3
    bad!("#{name} has dimensions above 0") unless shape.all? { |n| n > 0 }
    bad!("the last dimension of #{name} is #{last.join(' or ')}") unless last.include?(shape[2])
    unless b.bytesize == 4 * shape.reduce(:*)
      bad!("#{name} has #{b.bytesize} bytes, not those of its shape")
    end
    v = floats(b)
    bad!("#{name} has values that are not finite") unless v.all?(&:finite?)
    v.each_slice(shape[2]).to_a
  end
end

class NodeServiceImpl
  include GRPC::GenericService
  self.service_name = on?('grpc-service-in-other-package') ? 'sixth.NodeService' : 'node.NodeService'
  self.marshal_class_method = :encode
  self.unmarshal_class_method = :decode
  C = Proto::CLS
  OPS = {
    UnaryInference: %w[InferenceRequest InferenceResponse], GetWeights: %w[WeightRequest WeightResponse],
    GossipGradient: %w[GossipGradientRequest GossipGradientResponse], GetCheckpoint: %w[GetCheckpointRequest GetCheckpointResponse],
    GetCheckpointInfo: %w[GetCheckpointInfoRequest GetCheckpointInfoResponse], GossipProof: %w[GossipProofRequest GossipProofResponse],
    GossipTransaction: %w[GossipTransactionRequest GossipTransactionResponse], GossipStake: %w[GossipStakeRequest GossipStakeResponse],
    RequestProofValidation: %w[ProofValidationRequest ProofValidationResponse], GossipValidationVote: %w[ValidationVoteRequest ValidationVoteResponse],
    PipelineForward: %w[PipelineForwardRequest PipelineForwardResponse], PipelineBackward: %w[PipelineBackwardRequest PipelineBackwardResponse],
    GetShardInfo: %w[GetShardInfoRequest GetShardInfoResponse], DHTPing: %w[DHTPingRequest DHTPingResponse],
    DHTStore: %w[DHTStoreRequest DHTStoreResponse], DHTFindNode: %w[DHTFindNodeRequest DHTFindNodeResponse],
    DHTFindValue: %w[DHTFindValueRequest DHTFindValueResponse], SwarmForward: %w[SwarmForwardRequest SwarmForwardResponse],
    GetSwarmStatus: %w[SwarmStatusRequest SwarmStatusResponse], UpdatePeerCapacity: %w[UpdatePeerCapacityRequest UpdatePeerCapacityResponse]
  }.freeze
  RENAMED = { GossipStake: 'op-gossip-stake-missing', RequestProofValidation: 'op-proof-validation-missing', GetSwarmStatus: 'op-swarm-status-missing',
              UpdatePeerCapacity: 'op-update-capacity-missing', GossipValidationVote: 'op-vote-missing', GetShardInfo: 'op-shard-info-missing' }.freeze
  OPS.each do |name, (a, b)|
    next if RENAMED[name] && on?(RENAMED[name])
    name = :DHTStoreValue if name == :DHTStore && on?('op-store-renamed')
    if name == :GossipProof && on?('op-gossip-proof-streams')
      rpc name, C[a], stream(C[b])
    else
      rpc name, C[a], C[b]
    end
  end
  if on?('op-stream-inference-one-way')
    rpc :StreamInference, C['InferenceRequest'], stream(C['InferenceResponse'])
  elsif !on?('op-stream-inference-missing')
    rpc :StreamInference, stream(C['InferenceRequest']), stream(C['InferenceResponse'])
  end

  def initialize(port)
    @training = Training.new
    @dht = Dht.new(port)
    @passes = Passes.new
    @weights = {}
  end

  def counted
    STATE.count(:rpc)
    sleep 0.2 if pec?('p-slow-answers')
    yield
  end

  def bad!(m) = raise(GRPC::InvalidArgument, pec?('p-other-error-texts') ? 'no' : m)
  def stub_base = nil

  # ---- pipeline
  def held!(n)
    return 5 if n < 0 && on?('negative-layer-counts-from-end')
    bad!('a layer is numbered from 0') if n < 0
    list = Model::HELD
    return n if list.include?(n)
    raise GRPC::Unavailable, 'layer not here' if on?('absent-layer-unavailable')
    raise GRPC::NotFound, "layer #{n} is not here"
  end

  def pipeline_forward(q, _c)
    counted do
      from = held!(q[:target_shard])
      shape = q[:hidden_shape]
      rows = Wire.rows(q[:hidden_states], shape, [Model::HIDDEN], 'hidden_states')
      if on?('answer-of-pass-before')
        rows, @rows_before = (@rows_before && @rows_before.size == rows.size ? @rows_before : rows), rows
      end
      if on?('same-session-answer-cached')
        @memo ||= {}
        rows = (@memo[[q[:session_id], shape]] ||= rows)
      end
      layers = Model::HELD.select { |l| l >= from }
      if on?('only-first-sequence-computed')
        rows = rows.first(shape[1])
        shape = [1, shape[1], shape[2]]
      end
      labels = nil
      unless q[:training_labels].empty?
        labels = q[:training_labels].unpack('q<*')
        good = q[:training_labels].bytesize == 8 * rows.size && labels.all? { |y| y == -100 || y.between?(0, Model::VOCAB - 1) }
        unless good
          return { request_id: q[:request_id], success: false,
                   error_message: on?('bad-labels-without-reason') ? '' : 'training_labels must be one int64 from 0 to 47 for each position' }
        end
      end
      out, kept = Model.forward(rows, layers)
      logits = Model.logits(out)
      if labels || !q[:sender_url].empty?
        key = [q[:session_id], q[:request_id]]
        url = q[:sender_url]
        url = (@first_url ||= url) if on?('gradients-to-first-sender') && !url.empty?
        @passes.put(key, { kept: kept, shape: shape, url: url, from: from, source: q[:source_shard], tried: 0, busy: Mutex.new })
      end
      rid = q[:request_id]
      rid = rid[0, 36] if on?('request-id-cut-to-36')
      a = { request_id: rid, success: true, is_final: true, logits: Wire.bytes(logits), logits_shape: [shape[0], shape[1], Model::VOCAB], compute_ms: 0.1 }
      a[:loss] = Model.loss(logits, labels) if labels
      a.delete(:loss) if on?('training-pass-without-loss')
      if on?('hidden-states-instead-of-logits')
        a.merge!(logits: ''.b, logits_shape: [], hidden_states: Wire.bytes(out), hidden_shape: shape)
        a[:is_final] = false
      end
      a
    end
  rescue GRPC::InvalidArgument => e
    raise unless pec?('p-forward-refuses-in-answer')
    { request_id: q[:request_id], success: false, error_message: e.message.sub(/\A\d+:/, '') }
  end

  def pipeline_backward(q, _c)
    counted do
      fail_with = ->(m) { { success: false, error_message: m } }
      held!(q[:target_shard])
      key = [q[:session_id], q[:request_id]]
      pass = @passes.get(key)
      return({ success: true }) if pass.nil? && on?('backward-of-unknown-pass-succeeds')
      if pass.nil?
        @passes.clear if on?('refused-gradient-clears-passes')
        return fail_with.('no pass is kept under this session_id and request_id')
      end
      b, s, = pass[:shape]
      begin
        grads = Wire.rows(q[:grad_output], q[:grad_shape], [Model::HIDDEN, Model::VOCAB], 'grad_output')
        bad!('grad_shape does not fit the pass') unless q[:grad_shape][0, 2] == [b, s]
      rescue GRPC::InvalidArgument
        @passes.take(key) if on?('wrong-gradient-drops-pass')
        raise
      end
      grads = Model.head_back(grads) if q[:grad_shape][2] == Model::VOCAB
      back = Model.backward(grads, pass[:kept])
      pass = @passes.take(key) || (nil)
      return fail_with.('the gradients of this pass are on their way') if pass.nil?
      return({ success: true }) if pass[:url].empty? || on?('gradients-not-passed-on')
      why = Back.send_to(pass, q, back)
      return({ success: true }) if why.nil?
      @passes.put(key, pass) if why[0] == :again
      fail_with.("the previous node did not take the gradients: #{why[1]}")
    end
  end

  # ---- weights and checkpoints
  def get_weights(q, _c)
    counted do
      t = q[:shard_range].strip
      bad!('shard_range is like 3, 3-5 or 3,5') unless t =~ /\A\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*\z/
      list = t.split(',').flat_map do |x|
        a, z = x.split('-').map(&:to_i)
        z ||= a
        bad!('a range runs upwards') if z < a
        a == z ? [a] : (a..(on?('range-without-its-end') ? z - 1 : z)).first(2000)
      end.uniq
      if on?('absent-weights-left-out')
        list &= Model::HELD
      elsif (list - Model::HELD).any?
        return({ weights_data: ''.b }) if on?('absent-weights-empty')
        unless on?('partly-absent-weights-served') && (list & Model::HELD).any?
          raise GRPC::NotFound, "layers #{(list - Model::HELD).first(5).join(', ')} are not here"
        end
        list &= Model::HELD
      end
      list = Model::HELD if on?('weights-always-all')
      head = list.map { |l| { name: "layers.#{l}.weight", shape: [Model::HIDDEN, Model::HIDDEN], dtype: 'f32' } }
      j = JSON.generate(head)
      data = [j.bytesize].pack('V') + j + list.map { |l| Model.raw(l) }.join
      { weights_data: data }
    end
  end

  def get_checkpoint(q, _c)
    counted do
      list = @training.checkpoints
      unless q[:model_hash].empty?
        list = list.select { |c| c[:hash] == q[:model_hash] }
        list = @training.checkpoints if list.empty? && on?('unknown-hash-gives-latest')
      end
      skip = on?('min-version-ignored') || (on?('min-version-ignored-beside-hash') && !q[:model_hash].empty?)
      list = list.select { |c| on?('own-version-too-old') ? c[:version] > q[:min_version] || q[:min_version] == 0 : c[:version] >= q[:min_version] } unless skip
      c = list.last
      c = list.first if on?('oldest-fitting-checkpoint') && q[:min_version] > 0
      if c.nil?
        raise GRPC::NotFound, 'no such checkpoint' if pec?('p-checkpoint-not-found-status')
        a = { success: false, error_message: 'no checkpoint fits' }
        return a
      end
      a = { success: true, version: c[:version], model_hash: c[:hash], phase: c[:phase], checkpoint_data: c[:data], total_size: c[:data].bytesize, codec: 'lz4' }
      a[:total_size] = c[:raw] if pec?('p-total-size-uncompressed')
      a
    end
  end

  def get_checkpoint_info(_q, _c)
    counted do
      c = @training.latest
      a = { version: c[:version], model_hash: c[:hash], phase: c[:phase], params: Model::PARAMS, loss: VIEWS::LOSS, created: '2026' }
      a[:params] = a[:params].to_s if on?('pb-params-text')
      a[:model_hash] = sha("#{c[:version]}") if on?('info-other-hash')
      a
    end
  end

  # ---- gossip
  def gossip_gradient(q, _c)
    counted do
      round = Training::ROUND
      why = gradient_fault(q)
      STATE.count(:submitted)
      if why
        r = round
        r = (@r = (@r || round) + 1) if on?('round-grows-with-refusals')
        return({ accepted: false, reason: on?('gossip-refusal-without-reason') ? '' : why, current_round: r })
      end
      STATE.count(:accepted)
      a = { accepted: true, reason: '', current_round: round }
      a
    end
  end

  def gradient_fault(q)
    return 'node_id is empty' if q[:node_id].empty?
    return "round #{q[:round_id]} is not the current one" unless (Training::ROUND - 1..Training::ROUND).cover?(q[:round_id])
    return 'the model is another one' unless q[:model_hash] == @training.latest[:hash] || on?('gossip-of-other-model-accepted')
    return 'batch_size must be above 0' unless q[:batch_size] > 0
    return 'the loss is not finite' unless q[:loss].finite?
    return 'ttl is below 0' if q[:ttl] < 0
    return 'there are no gradients' if q[:layer_gradients].empty?
    q[:layer_gradients].each do |name, data|
      l = name[/\Alayers\.([345])(?:\.weight)?\z/, 1] or return "layer #{name[0, 40]} is not here"
      raw = LZ4.unframe(data)
      return "the gradient of layer #{l} has #{raw.bytesize} bytes instead of #{4 * Model::HIDDEN**2}" unless raw.bytesize == 4 * Model::HIDDEN**2
      return "the gradient of layer #{l} is not finite" unless raw.unpack('e*').all?(&:finite?)
    rescue LZ4::Bad => e
      return "the gradient of #{name[0, 40]} is no LZ4 frame: #{e.message}"
    end
    nil
  end

  def gossip_proof(q, _c)
    a = counted { q[:proof_id].empty? ? { accepted: false, reason: 'proof_id is empty' } : { accepted: true } }
    on?('op-gossip-proof-streams') ? [a].each : a
  end

  def gossip_transaction(q, _c)
    raise GRPC::Unimplemented, 'later' if on?('op-gossip-transaction-unimplemented')
    counted { q[:transaction_id].empty? ? { accepted: false, reason: 'transaction_id is empty' } : { accepted: true } }
  end

  def gossip_stake(q, _c) = counted { q[:address].empty? ? { accepted: false, reason: 'address is empty' } : { accepted: true } }

  def request_proof_validation(q, _c)
    counted do
      p = STATE.proofs.find { |x| x[:id] == q[:proof_id] }
      { valid: p ? p[:verified] : false, reason: p ? '' : 'no such proof' }
    end
  end

  def gossip_validation_vote(q, _c) = counted { q[:proof_id].empty? ? { accepted: false, reason: 'proof_id is empty' } : { accepted: true } }

  # ---- inference, shards, swarm
  def answer(q)
    return { request_id: q[:request_id], error_message: 'prompt is empty', finish_reason: 'error' } if q[:prompt].empty?
    n = q[:max_tokens] > 0 ? [q[:max_tokens], 4096].min : 100
    pieces, k, why = ACTIONS.generate(q[:prompt], n, q[:stop].reject(&:empty?))
    { request_id: q[:request_id], text: pieces.join, tokens: k, finish_reason: why }
  end

  def unary_inference(q, _c)
    counted do
      bad!('prompt is empty') if q[:prompt].empty?
      answer(q)
    end
  end

  def stream_inference(qs, _c = nil)
    return [answer(qs)].each unless qs.respond_to?(:each) && !qs.is_a?(Hash)
    Enumerator.new do |y|
      n = 0
      qs.each do |q|
        n += 1
        raise GRPC::Internal, 'one message only' if n > 1 && on?('stream-inference-one-message')
        y << answer(q)
      end
    end
  end

  def get_shard_info(_q, _c)
    counted { { node_id: STATE.node_id, layers: Model::HELD, total_layers: Model::LAYERS, hidden_dim: Model::HIDDEN } }
  end

  def swarm_forward(q, c)
    r = pipeline_forward(Proto.blank('PipelineForwardRequest').merge(q.slice(:session_id, :request_id, :hidden_states, :hidden_shape, :target_shard)), c)
    r.slice(:request_id, :success, :error_message, :logits, :logits_shape)
  end

  def get_swarm_status(_q, _c)
    counted { { node_id: STATE.node_id, peers: STATE.peers.size, layers: Model::HELD } }
  end

  def update_peer_capacity(q, _c) = counted { q[:node_id].empty? ? { accepted: false, reason: 'node_id is empty' } : { accepted: true } }

  # ---- DHT
  def id20!(x, what)
    return if x.bytesize == 20
    raise ArgumentError, "#{what} of #{x.bytesize} bytes" if on?('dht-short-id-unknown-error')
    raise GRPC::OutOfRange, "#{what} of #{x.bytesize} bytes" if on?('dht-short-id-out-of-range')
    bad!("#{what} has 20 bytes")
  end

  def dht_ping(q, _c)
    counted do
      @dht.learn(q[:sender])
      { responder: @dht.me }
    end
  end

  def dht_store(q, _c)
    counted do
      @dht.learn(q[:sender])
      if on?('refused-store-stored') && (q[:key].bytesize != 20 || q[:value].size > 100)
        @dht.store(q[:key], q[:value])
        return({ responder: @dht.me, success: false })
      end
      if q[:key].bytesize != 20 && pec?('p-dht-store-refused-in-answer')
        return({ responder: @dht.me, success: false })
      end
      id20!(q[:key], 'key')
      bad!('value is empty') if q[:value].empty?
      @dht.store(q[:key], q[:value])
      { responder: @dht.me, success: !on?('store-success-false') }
    end
  end

  def dht_find_node(q, _c)
    counted do
      @dht.learn(q[:sender])
      id20!(q[:target_id], 'target_id')
      list = @dht.closest(q[:target_id])
      r = { responder: @dht.me, nodes: list }
      r
    end
  end

  def dht_find_value(q, _c)
    counted do
      @dht.learn(q[:sender])
      id20!(q[:key], 'key')
      v = @dht.find(q[:key])
      if v.nil?
        list = @dht.closest(q[:key], true)
        list = [] if on?('value-search-without-nodes')
        r = { responder: @dht.me, nodes: list, found: false, hops: 0 }
        return r
      end
      r = { responder: @dht.me, value: v, found: true, hops: 0 }
      r
    end
  end
end

# Sends gradients back to the node that a pass came from.
module Back
  module_function

  # the gRPC address of a node: its HTTP port plus 1000
  def address(url)
    m = url.match(%r{\A(?:(https?|grpc)://)?(\[[^\]]+\]|[^/:\[\]]+):(\d{1,5})/?\z}) or return nil
    port = m[3].to_i
    port += 1000 unless m[1] == 'grpc' || on?('gradients-to-http-port')
    port.between?(1, 65_535) ? "#{m[2]}:#{port}" : nil
  end

  # nil, or why it failed: [:again or :never, text]
  def send_to(pass, q, back)
    a = address(pass[:url]) or return [:never, 'sender_url is not understood']
    shape = pass[:shape]
    data = Wire.bytes(back)
    data = back.flatten.first(back.flatten.size - 1).pack('e*') if on?('gradient-a-value-short')
    m = { session_id: q[:session_id], request_id: q[:request_id], grad_output: data, grad_shape: shape, target_shard: pass[:source] }
    wait = 0.1
    limit = 5
    tries = 3
    tries = 1 if pec?('p-gradients-sent-once')
    last = nil
    twice = on?('gradients-sent-twice')
    stub = GRPC::ClientStub.new(a, :this_channel_is_insecure, channel_args: { 'grpc.max_receive_message_length' => 100 << 20, 'grpc.max_send_message_length' => 100 << 20,
                                                                             'grpc.keepalive_time_ms' => 30_000, 'grpc.keepalive_timeout_ms' => 10_000,
                                                                             'grpc.keepalive_permit_without_calls' => 1, 'grpc.enable_retries' => 0,
                                                                             'grpc.use_local_subchannel_pool' => 1 })
    tries.times do |i|
      begin
        r = stub.request_response('/node.NodeService/PipelineBackward', m, ->(x) { Proto.encode('PipelineBackwardRequest', x) },
                                  ->(x) { Proto.decode('PipelineBackwardResponse', x) }, deadline: Time.now + limit)
        if twice
          twice = false
          redo
        end
        return nil if r[:success]
        return [:never, r[:error_message]]
      rescue GRPC::Unavailable, GRPC::ResourceExhausted, GRPC::Internal => e
        last = e
        return [:again, e.details] if i == tries - 1
        sleep wait unless on?('gradients-again-without-pause')
        wait = [wait * 2, 2].min
      rescue GRPC::DeadlineExceeded => e
        return [:never, e.details]
      rescue GRPC::BadStatus => e
        next last = e if on?('gradients-again-after-not-found')
        return [:never, e.details]
      end
    end
    [:again, last&.details]
  end
end

class NodeServiceImpl
  def dht_store_value(q, c) = dht_store(q, c)
end

# puts the answers into the classes that grpc encodes
module Wrapped
  NodeServiceImpl.rpc_descs.each do |name, d|
    out = d.output.is_a?(GRPC::RpcDesc::Stream) ? d.output.type : d.output
    wrap = ->(r) { r.is_a?(Hash) ? out.new(r) : Enumerator.new { |y| r.each { |x| y << out.new(x) } } }
    define_method(GRPC::GenericService.underscore(name.to_s)) { |q, c| wrap.(super(q, c)) }
  end
end
NodeServiceImpl.prepend(Wrapped)
