# A small protobuf codec that is driven by tables: [number, name, type].
# A type ending in * is repeated; :map_sb is map<string,bytes>; a String names a message.
require 'grpc'
module Proto
  T = {}
  def self.msg(name, *fields) = T[name] = fields
  def self.swap(id, a, b) = on?(id) ? [b, a] : [a, b]

  s1, s2 = swap('pb-forward-answer-first-two', 1, 2)
  msg 'PipelineForwardRequest', [1, :session_id, :string], [2, :request_id, :string], [3, :hidden_states, :bytes],
      [4, :hidden_shape, :'int64*'], [5, :attention_mask, :bytes], [6, :position_ids, :bytes], [7, :past_key_values, :'bytes*'],
      [8, :use_cache, :bool], [9, :source_shard, :int32],
      [10, :target_shard, on?('pb-target-shard-zigzag') ? :sint32 : :int32],
      [on?('pb-labels-number') ? 13 : 11, :training_labels, :bytes], [12, :sender_url, :string]
  msg 'PipelineForwardResponse', [s1, :request_id, :string], [s2, :success, :bool], [3, :error_message, :string],
      [4, :hidden_states, :bytes], [5, :hidden_shape, :'int64*'], [6, :past_key_values, :'bytes*'], [7, :is_final, :bool],
      [8, :logits, :bytes], [9, :logits_shape, on?('pb-logits-shape-int32-fixed') ? :'fixed32*' : :'int64*'],
      [on?('pb-loss-number') ? 11 : 10, :loss, on?('pb-loss-float') ? :float : :double], [15, :compute_ms, :double]
  b1, b2 = swap('pb-backward-ids-swapped', 1, 2)
  msg 'PipelineBackwardRequest', [b1, :session_id, :string], [b2, :request_id, :string],
      [on?('pb-grad-output-number') ? 6 : 3, :grad_output, :bytes], [4, :grad_shape, :'int64*'], [5, :target_shard, :int32]
  msg 'PipelineBackwardResponse', [1, :success, :bool], [2, :error_message, :string]
  g3, g8 = swap('pb-gossip-hash-number', 3, 8)
  msg 'GossipGradientRequest', [1, :node_id, :string], [2, :round_id, :int32], [g3, :model_hash, :string], [4, :timestamp, :double],
      [5, :batch_size, :int32], [6, :loss, :double], [7, :layer_gradients, :map_sb], [g8, :signature, :string], [9, :ttl, :int32]
  msg 'GossipGradientResponse', [1, :accepted, :bool], [2, :reason, :string],
      [on?('pb-current-round-number') ? 4 : 3, :current_round, :int32]
  msg 'WeightRequest', [1, :shard_range, :string]
  msg 'WeightResponse', [1, :weights_data, :bytes]
  msg 'GetCheckpointRequest', [1, :model_hash, :string], [2, :min_version, :int32]
  c6, c7 = swap('pb-checkpoint-size-number', 7, 8)
  msg 'GetCheckpointResponse', [1, :success, :bool], [2, :error_message, :string], [3, :version, :int32], [4, :model_hash, :string],
      [5, :phase, :string], [6, :checkpoint_data, :bytes], [c6, :total_size, :int64], [c7, :codec, :string]
  msg 'GetCheckpointInfoRequest'
  msg 'GetCheckpointInfoResponse', [1, :version, :int32], [2, :model_hash, :string], [3, :phase, :string],
      [4, :params, on?('pb-params-text') ? :string : :int64], [5, :loss, :double], [9, :created, :string]
  n2, n3 = 2, on?('pb-dht-port-number') ? 4 : 3
  msg 'DHTNodeInfo', [1, :node_id, :bytes], [n2, :ip, :string], [n3, :port, :int32]
  msg 'DHTPingRequest', [1, :sender, 'DHTNodeInfo']
  msg 'DHTPingResponse', [1, :responder, 'DHTNodeInfo']
  msg 'DHTFindNodeRequest', [1, :sender, 'DHTNodeInfo'], [2, :target_id, :bytes]
  msg 'DHTFindNodeResponse', [1, :responder, 'DHTNodeInfo'], [2, :nodes, 'DHTNodeInfo*']
  msg 'DHTFindValueRequest', [1, :sender, 'DHTNodeInfo'], [2, :key, :bytes]
  f3, f4 = swap('pb-found-number', 4, 5)
  msg 'DHTFindValueResponse', [1, :responder, 'DHTNodeInfo'], [2, :value, :string], [3, :nodes, 'DHTNodeInfo*'], [f3, :found, :bool],
      [f4, :hops, :int32]
  msg 'DHTStoreRequest', [1, :sender, 'DHTNodeInfo'], [2, :key, :bytes], [on?('pb-store-value-number') ? 4 : 3, :value, :string]
  msg 'DHTStoreResponse', [1, :responder, 'DHTNodeInfo'], [2, :success, :bool]
  # Messages that the document leaves open: our own.
  msg 'InferenceRequest', [1, :request_id, :string], [2, :prompt, :string], [3, :max_tokens, :int32], [4, :stop, :'string*']
  msg 'InferenceResponse', [1, :request_id, :string], [2, :text, :string], [3, :tokens, :int32], [4, :finish_reason, :string],
      [5, :error_message, :string]
  msg 'GossipProofRequest', [1, :proof_id, :string], [2, :node_id, :string], [3, :payload, :bytes]
  msg 'GossipProofResponse', [1, :accepted, :bool], [2, :reason, :string]
  msg 'GossipTransactionRequest', [1, :transaction_id, :string], [2, :payload, :bytes]
  msg 'GossipTransactionResponse', [1, :accepted, :bool], [2, :reason, :string]
  msg 'GossipStakeRequest', [1, :address, :string], [2, :amount, :int64]
  msg 'GossipStakeResponse', [1, :accepted, :bool], [2, :reason, :string]
  msg 'ProofValidationRequest', [1, :proof_id, :string]
  msg 'ProofValidationResponse', [1, :valid, :bool], [2, :reason, :string]
  msg 'ValidationVoteRequest', [1, :proof_id, :string], [2, :valid, :bool]
  msg 'ValidationVoteResponse', [1, :accepted, :bool], [2, :reason, :string]
  msg 'GetShardInfoRequest'
  msg 'GetShardInfoResponse', [1, :node_id, :string], [2, :layers, :'int32*'], [3, :total_layers, :int32], [4, :hidden_dim, :int32]
  msg 'SwarmForwardRequest', [1, :session_id, :string], [2, :request_id, :string], [3, :hidden_states, :bytes],
      [4, :hidden_shape, :'int64*'], [5, :target_shard, :int32]
  msg 'SwarmForwardResponse', [1, :request_id, :string], [2, :success, :bool], [3, :error_message, :string], [4, :hidden_states, :bytes],
      [5, :hidden_shape, :'int64*'], [6, :logits, :bytes], [7, :logits_shape, :'int64*']
  msg 'SwarmStatusRequest'
  msg 'SwarmStatusResponse', [1, :node_id, :string], [2, :peers, :int32], [3, :layers, :'int32*']
  msg 'UpdatePeerCapacityRequest', [1, :node_id, :string], [2, :memory_mb, :int64]
  msg 'UpdatePeerCapacityResponse', [1, :accepted, :bool], [2, :reason, :string]

  module_function

  def varint(n, out)
    n &= 0xffffffffffffffff
    while n > 127
      out << ((n & 127) | 128); n >>= 7
    end
    out << n
  end

  WIRE = { string: 2, bytes: 2, int32: 0, int64: 0, sint32: 0, bool: 0, double: 1, float: 5, fixed32: 5, map_sb: 2 }.freeze

  def scalar(t, v, out)
    case t
    when :string, :bytes
      v = v.to_s.b
      varint(v.bytesize, out); out << v
    when :bool then out << (v ? 1 : 0)
    when :sint32 then varint((v << 1) ^ (v >> 31), out)
    when :double then out << [v].pack('E')
    when :float then out << [v].pack('e')
    when :fixed32 then out << [v].pack('V')
    else varint(v, out)
    end
  end

  def encode(name, h)
    out = String.new(encoding: 'BINARY')
    fields = T.fetch(name)
    fields = fields.reverse if pec?('p-grpc-fields-reversed')
    fields.each do |num, key, type|
      v = h[key]
      next if v.nil?
      if type.is_a?(String)
        rep = type.end_with?('*')
        (rep ? v : [v]).each do |x|
          sub = encode(type.delete('*'), x)
          varint(num << 3 | 2, out); varint(sub.bytesize, out); out << sub
        end
      elsif type == :map_sb
        v.each do |k, x|
          sub = String.new(encoding: 'BINARY')
          sub << 10; scalar(:string, k, sub); sub << 18; scalar(:bytes, x, sub)
          varint(num << 3 | 2, out); varint(sub.bytesize, out); out << sub
        end
      elsif type.end_with?('*')
        t = type.to_s.delete('*').to_sym
        if WIRE[t] == 2 || pec?('p-grpc-unpacked')
          v.each { |x| varint(num << 3 | WIRE[t], out); scalar(t, x, out) }
        elsif !v.empty?
          sub = String.new(encoding: 'BINARY')
          v.each { |x| scalar(t, x, sub) }
          varint(num << 3 | 2, out); varint(sub.bytesize, out); out << sub
        end
      else
        default = v == 0 || v == false || v == ''
        next if default && !pec?('p-grpc-defaults-written')
        varint(num << 3 | WIRE[type], out); scalar(type, v, out)
      end
    end
    if pec?('p-grpc-unknown-fields')
      varint(1000 << 3 | 2, out); scalar(:string, 'extra', out)
    end
    out
  end

  def bad!(m) = raise(GRPC::InvalidArgument, m)

  def rd(buf, pos, lim)
    n = 0; sh = 0
    loop do
      bad!('cut varint') if pos >= lim
      b = buf.getbyte(pos); pos += 1
      n |= (b & 127) << sh
      return [n & 0xffffffffffffffff, pos] if b < 128
      sh += 7
      bad!('long varint') if sh > 63
    end
  end

  def signed(n, bits)
    n &= (1 << bits) - 1
    n >= 1 << (bits - 1) ? n - (1 << bits) : n
  end

  def conv(t, n)
    case t
    when :bool then n != 0
    when :int32 then signed(n, 32)
    when :sint32 then n &= 0xffffffff; (n >> 1) ^ -(n & 1)
    else signed(n, 64)
    end
  end

  def text(s)
    s = s.dup.force_encoding('UTF-8')
    bad!('a string is not UTF-8') unless s.valid_encoding?
    s
  end

  def blank(name)
    h = {}
    T.fetch(name).each do |_, key, type|
      h[key] = if type.is_a?(String) then type.end_with?('*') ? [] : nil
               elsif type == :map_sb then {}
               elsif type.end_with?('*') then []
               else { string: '', bytes: ''.b, bool: false, double: 0.0, float: 0.0 }.fetch(type, 0)
               end
    end
    h
  end

  def decode(name, buf, pos = 0, lim = nil)
    buf = buf.b unless buf.encoding == Encoding::BINARY
    lim ||= buf.bytesize
    h = blank(name)
    table = T.fetch(name)
    while pos < lim
      tag, pos = rd(buf, pos, lim)
      num = tag >> 3; wire = tag & 7
      bad!('field number 0') if num == 0
      case wire
      when 0 then val, pos = rd(buf, pos, lim)
      when 1
        bad!('cut') if pos + 8 > lim
        val = buf.byteslice(pos, 8); pos += 8
      when 5
        bad!('cut') if pos + 4 > lim
        val = buf.byteslice(pos, 4); pos += 4
      when 2
        n, pos = rd(buf, pos, lim)
        bad!('cut field') if pos + n > lim
        val = [pos, n]; pos += n
      else bad!('unknown wire type')
      end
      f = table.find { |x| x[0] == num }
      if f.nil?
        bad!("unknown field #{num}") if on?('grpc-unknown-field-refused')
        next
      end
      _, key, type = f
      if type.is_a?(String)
        next unless wire == 2
        sub = decode(type.delete('*'), buf, val[0], val[0] + val[1])
        type.end_with?('*') ? h[key] << sub : h[key] = sub
      elsif type == :map_sb
        next unless wire == 2
        k = ''; v = ''.b; p = val[0]; l = val[0] + val[1]
        while p < l
          t2, p = rd(buf, p, l)
          if t2 & 7 == 2
            n, p = rd(buf, p, l)
            bad!('cut map') if p + n > l
            x = buf.byteslice(p, n); p += n
            k = text(x) if t2 >> 3 == 1
            v = x if t2 >> 3 == 2
          elsif t2 & 7 == 0 then _, p = rd(buf, p, l)
          else bad!('bad map')
          end
        end
        v = text(v).b if on?('gossip-gradients-read-as-text')
        h[key][k] = v
      elsif type.end_with?('*')
        t = type.to_s.delete('*').to_sym
        if t == :bytes || t == :string
          next unless wire == 2
          x = buf.byteslice(*val)
          h[key] << (t == :string ? text(x) : x)
        elsif wire == 2
          p = val[0]; l = val[0] + val[1]
          while p < l
            n, p = rd(buf, p, l)
            h[key] << conv(t, n)
          end
        elsif wire == 0
          next if on?('grpc-reads-packed-only')
          h[key] << conv(t, val)
        end
      else
        next unless WIRE[type] == wire
        h[key] = case type
                 when :string then text(buf.byteslice(*val))
                 when :bytes then buf.byteslice(*val)
                 when :double then val.unpack1('E')
                 when :float then val.unpack1('e')
                 else conv(type, val)
                 end
      end
    end
    h
  end

  CLS = {}
  T.each_key do |n|
    c = Struct.new(:h)
    c.define_singleton_method(:encode) { |o| Proto.encode(n, o.h) }
    c.define_singleton_method(:decode) { |b| Proto.decode(n, b) }
    CLS[n] = c
  end
end
