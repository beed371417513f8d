# The public native API.
module Native
  module_function

  def json(o, status = 200, h = {})
    body = API.dump(o)
    Res.new(status, body, { 'Content-Type' => 'application/json' }.merge(h))
  end

  def err(status, m) = json({ error: m }, status)

  def atoms(n)
    return n if on?('native-amounts-as-numbers')
    n.to_s
  end

  def call(r)
    p = r.path
    v = r.verb
    case p
    when '/healthz'
      get(v) { on?('healthz-answers-html') ? Res.new(200, '<html><body>ok</body></html>', { 'Content-Type' => 'text/html' }) : json({ status: 'ready', height: Chain::HEIGHT, peers: 3 }, 200) }
    when '/api/network' then get(v) { json(network) }
    when '/api/model' then get(v) { json(model) }
    when on?('route-checkpoint-without-suffix') ? '/api/model/checkpoint' : '/api/model/checkpoint.json' then get(v) { json(checkpoint) }
    when '/api/training' then get(v) { updates(r) }
    when '/api/blocks' then get(v) { blocks(r) }
    when %r{\A/api/block/([^/]+)\z} then get(v) { on?('route-block-by-query') ? err(404, 'no such path') : block($1) }
    when '/api/block' then on?('route-block-by-query') ? block(r.query['height'].to_s) : err(404, 'no such path')
    when '/api/account' then get(v) { account(r) }
    when '/api/validators' then get(v) { validators(r) }
    when '/api/inference' then get(v) { json(inference) }
    when '/api/inference/request' then get(v) { on?('route-request-missing') ? err(404, 'no such path') : request(r) }
    when '/network/genesis.json'
      get(v) { raw(Chain.genesis) }
    when '/network/dataset.json'
      get(v) { raw(on?('dataset-reformatted') ? JSON.pretty_generate(JSON.parse(Chain.dataset)) : Chain.dataset) }
    when %r{\A/artifacts/sha256/([^/]+)\z} then get(v) { on?('route-artifacts-without-algorithm') ? err(404, 'no such path') : artifact($1) }
    when %r{\A/artifacts/(\h{64})\z} then on?('route-artifacts-without-algorithm') ? artifact($1) : err(404, 'no such path')
    when '/work/status' then get(v) { work_status }
    when '/work/poll' then post(v) { work(r, 'poll') }
    when '/work/result' then on?('route-work-result-missing') ? err(404, 'no such path') : post(v) { work(r, 'result') }
    when '/rpc' then post(v) { on?('route-rpc-missing') ? err(404, 'no such path') : RPC.call(r) }
    when %r{\A/reference/v03/api(/.*)?\z} then reference(v, $1.to_s)
    when '/register', '/api/register', '/api/v1/register'
      return json({ registered: true, api_key: 'nk-' + SecureRandom.hex(8) }, 201) if on?('registration-still-open') && v == 'POST'
      return err(404, 'no such path') if on?('registration-404')
      err(410, 'registration has ended; keys are made by the client')
    when '/login', '/signup'
      return Res.new(302, '', { 'Location' => '/' }) if on?('login-redirects-to-root')
      Res.new(pec?('p-permanent-redirect') ? 308 : 302, '', { 'Location' => pec?('p-absolute-redirect') ? "http://#{r.header('host')}/join" : '/join' })
    when '/join' then get(v) { Res.new(200, '<!doctype html><title>Join</title><p>Install the command-line tool.', { 'Content-Type' => 'text/html' }) }
    when '/' then get(v) { json({ service: 'sixth', native_api: '0.4.0', node_api: '/api/v1' }) }
    end
  end

  def get(v)
    return err(405, 'GET only').tap { |x| x.headers['Allow'] = 'GET' } unless v == 'GET'
    yield
  end

  def post(v)
    return err(405, 'POST only').tap { |x| x.headers['Allow'] = 'POST' } unless v == 'POST'
    yield
  end

  def raw(s) = Res.new(200, s, { 'Content-Type' => 'application/json' })

  def network
    t = Chain.tip
    hash = t[:hash]
    hash = Chain.block(Chain::HEIGHT - 1)[0][:hash] if on?('network-hash-of-parent')
    o = { chain_id: Chain.chain_id, genesis_hash: Chain.genesis_hash, height: Chain::HEIGHT,
          block: { height: Chain::HEIGHT, hash: hash }, training_round: Chain.round,
          supply_atoms: atoms(1_000_000 * Chain::ATOM), ready: true, api_version: '0.4.0' }
    o
  end

  def model
    u = Chain.updates.last
    o = { parameters: { frozen: 6144, trained: 1536 }, revision: 'toy-r24', training_root: u[:training_root], serving_root: Chain.updates[-2][:serving_root],
          loss: { latest: u[:loss], first: Chain.updates.first[:loss] }, execution_profile: 'f32-scalar',
          artifacts: Chain.files.map { |d, n, c| { name: n, sha256: d, bytes: c.bytesize } } }
    o
  end

  def checkpoint
    u = Chain.updates.last
    u = Chain.updates[-4] if on?('checkpoint-of-earlier-round')
    { chain_id: Chain.chain_id, genesis_hash: on?('checkpoint-other-genesis') ? sha('old genesis') : Chain.genesis_hash, round: u[:round], root: u[:training_root], serving_round: Chain.updates[-2][:round],
      adapter: { format: 'lora-toy', values: Base64.strict_encode64(Digest::SHA256.digest("adapter #{u[:round]}") * 2) } }
  end

  def bounds(r, most)
    lim = r.query['limit']
    raise Refused.new(0, 'x', 'limit must be a positive number') if lim && lim !~ /\A[1-9]\d{0,8}\z/
    bef = r.query['before']
    raise Refused.new(0, 'x', 'before must be a number') if bef && bef !~ /\A\d{1,12}\z/
    n = [lim ? lim.to_i : 20, pec?('p-native-max-25') ? 25 : 100].min
    [n, bef ? bef.to_i : most + 1]
  end

  def updates(r)
    n, bef = bounds(r, Chain.round)
    bef = Chain.round + 1 if on?('training-before-ignored')
    list = Chain.updates.select { |u| u[:round] < bef }
    page = list.last(n).reverse
    page = page.reverse if pec?('p-native-ascending')
    page = page.map { |u| u.merge(training_root: sha("#{u[:training_root]} #{n}")) } if on?('update-root-of-page')
    json({ updates: page, index: { height: Chain::HEIGHT, complete: true, error: nil }, total: Chain.updates.size })
  rescue Refused => e
    err(400, e.message)
  end

  def blocks(r)
    n, bef = bounds(r, Chain::HEIGHT)
    n += 1 if on?('blocks-limit-plus-one')
    list = Chain.blocks.map(&:first)
    list = list.select { |b| b[:height] < bef }
    page = list.last(n).reverse
    page = page.reject { |b| b[:tx_count] == 2 } if on?('blocks-with-few-transactions-left-out')
    page = page.reverse if pec?('p-native-ascending')
    json({ blocks: page, height: Chain::HEIGHT })
  rescue Refused => e
    err(400, e.message)
  end

  def block(s)
    return err(404, 'no such block') unless s =~ /\A[1-9]\d{0,9}\z/
    h = s.to_i
    h = [h, Chain::HEIGHT].min if on?('block-above-is-tip')
    b, txs = Chain.block(h)
    return json({ block: nil }) if b.nil? && on?('missing-block-200')
    return err(404, 'no such block') if b.nil?
    o = b.merge(transactions: txs)
    o[:hash] = sha("header #{h}") if on?('block-other-hash-than-list')
    json(o)
  end

  KEY = /\A0[23]\h{64}\z/

  def account(r)
    k = r.query['public_key']
    return err(400, 'public_key is missing') if k.nil? || k.empty?
    k = k.downcase
    return err(400, 'public_key must be 33 bytes in hex') unless k =~ KEY
    return err(400, 'not a point of the curve') if on?('odd-keys-refused') && k.start_with?('03')
    if on?('account-cached')
      @first ||= k
      k = @first
    end
    found = k
    found = '02' + k[2..] if on?('key-parity-ignored')
    found = Chain.accounts.keys.find { |x| x[2..] == k[2..] } || k if on?('key-parity-ignored')
    a = Chain.account(found) || { spendable: 0, locked: 0, nonce: 0 }
    total = a[:spendable] + a[:locked]
    o = { public_key: k, spendable_atoms: atoms(a[:spendable]), locked_atoms: atoms(a[:locked]), total_atoms: atoms(total), next_nonce: a[:nonce] }
    json(o)
  end

  def validators(r)
    lim = r.query['limit'] || '20'
    off = r.query['offset'] || '0'
    return err(400, 'limit and offset are numbers') unless lim =~ /\A[1-9]\d{0,6}\z/ && off =~ /\A\d{1,6}\z/
    l = Chain.validators[off.to_i, [lim.to_i, 100].min] || []
    l = l.map { |v| v.merge(owner: nil) } if on?('validator-owner-null')
    json({ validators: l, total: Chain.validators.size })
  end

  def inference
    q = Chain.requests.values.count { |x| x[:status] == 'pending' }
    o = { chain_id: Chain.chain_id, genesis_hash: Chain.genesis_hash, serving_root: Chain.updates[-2][:serving_root],
          default_provider: { public_key: Chain.key(1), heartbeat: { height: Chain::HEIGHT - 2, state: 'live' } },
          price_atoms: atoms(1600), fee_atoms: atoms(150), queue_length: q }
    o[:chain_id] = Chain.chain_id + '-inference' if on?('inference-other-chain-id')
    o
  end

  def shown(q)
    o = q.dup
    o[:refund] = nil if on?('expired-without-refund') && q[:refund]
    o[:response] = nil if on?('completed-without-response') && q[:response]
    o
  end

  def request(r)
    id = r.query['id']
    return err(400, 'id is missing') if id.nil? || id.empty?
    q = Chain.request(id)
    if q.nil?
      return json({ request_id: id, status: 'pending' }) if on?('unknown-request-pending')
      return err(404, 'no such request')
    end
    json(shown(q))
  end

  def artifact(d)
    f = Chain.files.find { |x| x[0] == d }
    f ||= Chain.files.find { |x| x[0].start_with?(d) } if on?('artifact-by-prefix') && d =~ /\A\h{4,63}\z/
    return err(404, 'no such artifact') if f.nil?
    c = f[2]
    c = c + "\n" if on?('artifact-trailing-newline')
    Res.new(200, c, { 'Content-Type' => 'application/octet-stream' })
  end

  def work_status
    json({ sponsor: nil, stages: [{ name: 'train', available: true }, { name: 'verify', available: false }], attempts_remaining: 5 })
  end

  def work(r, what)
    b = begin
      JSON.parse(r.body.dup.force_encoding('UTF-8'))
    rescue JSON::ParserError
      raise if on?('work-garbage-crashes')
      return err(400, 'the body is not JSON')
    end
    return err(400, 'the body must be an object') unless b.is_a?(Hash) || on?('work-garbage-crashes')
    return json({ work: nil, retry_after: 30 }) if what == 'poll' && on?('unsigned-poll-served')
    return json({ accepted: true }) if what == 'result' && on?('unsigned-result-taken')
    return err(401, 'the message has no signature') unless b['signature'].is_a?(String)
    err(403, 'the signature does not fit or the worker is not known')
  end

  def old_block(h) = { height: h, hash: sha("v03 block #{h}"), time: (Time.utc(2025, 1, 1) + h * 60).strftime('%Y-%m-%dT%H:%M:%SZ') }

  def reference(v, p)
    @hidden ||= []
    if v != 'GET'
      if on?('reference-delete-works') && v == 'DELETE'
        @hidden << p
        return json({ deleted: true })
      end
      return err(405, 'read only').tap { |x| x.headers['Allow'] = 'GET' }
    end
    return err(404, 'no such view') if @hidden.include?(p)
    case p
    when '', '/', '/status' then json({ chain: 'reference-0.3', version: '0.3', height: 9, closed: true })
    when '/blocks' then json({ blocks: on?('reference-shows-present-blocks') ? Chain.blocks.last(9).map(&:first).reverse : (1..9).map { |h| old_block(h) }.reverse })
    when %r{\A/block/([1-9])\z} then json(old_block($1.to_i))
    when '/accounts' then json({ accounts: (1..3).map { |i| { address: "old#{i}", credits: i * 12 } } })
    else err(404, 'no such view')
    end
  end
end

# JSON-RPC 2.0 at /rpc
module RPC
  module_function

  def reply(id, result) = Native.json({ jsonrpc: '2.0', id: id, result: result })
  def fail(id, code, m, status = 200) = Native.json({ jsonrpc: '2.0', id: id, error: { code: code, message: m } }, pec?('p-rpc-errors-400') ? 400 : status)

  def call(r)
    b = JSON.parse(r.body.dup.force_encoding('UTF-8'))
    return fail(nil, -32600, 'one request object at a time', 400) unless b.is_a?(Hash)
    id = b['id']
    m = b['method']
    p = b['params'] || {}
    p = p.is_a?(Array) ? { 'height' => p[0], 'path' => p[0], 'tx' => p[0], 'data' => p[1] } : p
    return fail(id, -32600, 'method must be a text', 400) unless m.is_a?(String)
    return fail(id, -32602, 'params must be an object') unless p.is_a?(Hash)
    if on?('rpc-engine-methods-open') && %w[net_info dump_consensus_state unconfirmed_txs genesis health consensus_params].include?(m)
      return reply(id, { node_info: { moniker: 'sixth' }, peers: [], round_state: { height: '72', step: 1 } })
    end
    return fail(id, -32601, "method not allowed: #{m}") if m == 'validators' && on?('rpc-validators-missing')
    return fail(id, -32601, "method not allowed: #{m}") if m == 'abci_query' && on?('rpc-abci-query-missing')
    return fail(id, -32601, "method not allowed: #{m}") if m == 'broadcast_tx_sync' && on?('rpc-broadcast-missing')
    return fail(id, -32601, "method not allowed: #{m}") if m == 'status' && on?('rpc-status-missing')
    case m
    when 'status'
      t = Chain.tip
      reply(id, { node_info: { network: Chain.chain_id, version: '0.38.0' },
                  sync_info: { latest_block_height: t[:height].to_s, latest_block_hash: t[:hash].upcase, catching_up: false } })
    when 'block', 'validators'
      h = p['height']
      return fail(id, -32602, 'a height is needed') if h.nil? && on?('rpc-height-needed')
      h = Chain::HEIGHT if h.nil? || on?('rpc-height-ignored')
      return fail(id, -32602, 'height must be a number') unless h.to_s =~ /\A[1-9]\d{0,9}\z/
      blk, txs = Chain.block(h.to_i)
      return fail(id, -32603, 'no such height') if blk.nil?
      if m == 'block'
        reply(id, { block_id: { hash: blk[:hash].upcase }, block: { header: { chain_id: Chain.chain_id, height: h.to_s, time: blk[:time] },
                                                                    data: { txs: txs.map { |t| Base64.strict_encode64(JSON.generate(t)) } } } })
      else
        reply(id, { block_height: h.to_s, validators: Chain.validators.map { |v| { address: v[:public_key], voting_power: v[:power].to_s } }, count: '4', total: '4' })
      end
    when 'abci_query' then query(id, p)
    when 'broadcast_tx_sync'
      return fail(id, -32602, 'tx must be a text') unless p['tx'].is_a?(String)
      reply(id, { code: 4, log: 'cannot decode the transaction', hash: sha(p['tx']).upcase })
    else fail(id, -32601, "method not allowed: #{m}")
    end
  rescue JSON::ParserError
    fail(nil, -32700, 'no JSON', 400)
  end

  def query(id, p)
    data = p['data'].to_s
    data = [data.sub(/\A0x/, '')].pack('H*').force_encoding('UTF-8') if data =~ /\A(0x)?(\h\h)+\z/ && !Chain.requests.key?(data)
    case p['path']
    when '/jobs'
      return reply(id, { response: { code: 6, log: 'unknown path', value: '' } }) if on?('rpc-jobs-missing')
      v = { queue: Chain.requests.values.select { |q| q[:status] == 'pending' }.map { |q| q[:request_id] } }
    when '/job'
      v = Chain.request(data)
      return reply(id, { response: { code: 5, log: 'no such job', value: '' } }) if v.nil?
    else
      return reply(id, { response: { code: 6, log: 'unknown path', value: '' } })
    end
    reply(id, { response: { code: 0, log: '', height: Chain::HEIGHT.to_s, value: Base64.strict_encode64(JSON.generate(v)) } })
  end
end
