# The toy chain of the native API: 72 blocks, made anew in the same way at each start.
module Chain
  HEIGHT = 72
  ATOM = 1_000_000
  T0 = Time.utc(2026, 6, 1, 12, 0, 0)
  module_function

  def chain_id = 'sixth-toy-4'
  def key(n) = (n % 2 == 0 ? '02' : '03') + sha("key #{n}")

  class << self
    attr_reader :blocks, :updates, :requests, :accounts, :validators, :files, :genesis_hash, :genesis, :dataset
  end

  def update_at(h) = h % 3 == 0 ? h / 3 : nil

  def build
    data = JSON.generate({ name: 'toy-words', tokens: (0...400).map { |i| (i * 37 + i * i) % 48 }, sequence: 16 })
    @dataset = data
    model = "SIXTHMODEL1\n".b + (0...6).map { |l| [l].pack('V') + Digest::SHA256.digest("frozen #{l}") * 8 }.join
    tok = JSON.generate({ words: Model::WORDS })
    gen = { chain_id: chain_id, genesis_time: '2026-06-01T12:00:00Z', dataset: { path: '/network/dataset.json', sha256: sha(data), bytes: data.bytesize },
            model: { sha256: sha(model), bytes: model.bytesize }, tokenizer: { sha256: sha(tok) },
            validators: (1..4).map { |i| { public_key: key(i), power: 10 * i } }, initial_supply_atoms: (1_000_000 * ATOM).to_s }
    gen[:dataset][:sha256] = sha(data + "\n") if on?('genesis-digest-of-other-dataset')
    @genesis = JSON.pretty_generate(gen)
    @genesis_hash = sha(@genesis)
    @files = [['dataset.json', data], ['model.bin', model], ['tokenizer.json', tok], ['genesis.json', @genesis]].map { |n, c| [sha(c), n, c] }
    @accounts = (1..12).to_h { |i| [key(i), { spendable: 1000 * ATOM * i + 123_456 + i, locked: i.even? ? 250_000 * i : 0, nonce: i * 3 }] }
    @validators = (1..4).map { |i| { public_key: key(i), owner: key(i + 4), power: 10 * i, bond: (5000 * ATOM * i).to_s } }
    @requests = {}
    @blocks = []; @updates = []
    parent = '0' * 64
    (1..HEIGHT).each do |h|
      txs = []
      2.times do |k|
        n = h * 2 + k
        body = { type: 'inference', chain_id: chain_id, signer: key(5 + n % 8), nonce: h, provider: key(1), checkpoint: sha("serving #{[h / 3 - 1, 0].max}"),
                 prompt: "Tell me of item #{n} in the hall", max_tokens: 16 + n % 8, price_atoms: (1600 + n).to_s, expires: h + 6 }
        id = sha("request #{n}")[0, 40]
        txs << body.merge(request_id: id)
        if h >= HEIGHT - 1 && k == 1
          rec = { status: 'pending', expires: h + 6 }
        elsif n % 9 == 4
          rec = { status: 'expired', expired_at: h + 6 > HEIGHT ? HEIGHT : h + 6, refund: { atoms: body[:price_atoms], to: body[:signer], height: [h + 6, HEIGHT].min } }
        else
          rec = { status: 'completed', completed_at: h + 1, response: { text: (0...12).map { |i| Model.token(body[:prompt], i) }.join, tokens: 12 } }
        end
        rec = { status: 'pending', expires: h + 6 } if rec[:completed_at].to_i > HEIGHT || (rec[:status] == 'expired' && h + 6 > HEIGHT)
        @requests[id] = { request_id: id, status: nil, prompt: body[:prompt], provider: body[:provider], signer: body[:signer], price_atoms: body[:price_atoms],
                          max_tokens: body[:max_tokens], height: h }.merge(rec)
      end
      txs << { type: 'transfer', chain_id: chain_id, signer: key(1 + h % 12), nonce: 100 + h, to: key(1 + (h * 5) % 12), amount_atoms: (h * 1000).to_s } if h.even?
      if (r = update_at(h))
        u = { round: r, height: h, loss: format('%.6f', 6.0 - r * 0.05), training_root: sha("training #{r}"), serving_root: sha("serving #{r}"), worker: key(9 + r % 3) }
        txs << { type: 'update', chain_id: chain_id, signer: u[:worker], nonce: r, round: r, training_root: u[:training_root], loss: u[:loss] }
        @updates << u
      end
      txs = txs.map do |t|
        raw = JSON.generate(t)
        hash = sha("tx|#{raw}")
        t[:request_id] = hash if t[:request_id] && on?('transaction-hash-is-request-id')
        { hash: hash }.merge(t).merge(signature: sha("sig|#{raw}") + sha("sig2|#{raw}"))
      end
      if on?('transaction-hash-is-request-id')
        txs.each { |t| @requests[t[:hash]] = @requests.delete(@requests.key(@requests.values.find { |q| q[:prompt] == t[:prompt] })).merge(request_id: t[:hash]) if t[:request_id] }
      end
      results = txs.map { |t| { hash: t[:hash], code: 0, fee_atoms: '150' } }
      b = { height: h, hash: nil, time: (T0 + h * 30).strftime('%Y-%m-%dT%H:%M:%SZ'), parent_hash: parent, proposer: key(1 + h % 4), tx_count: txs.size, results: results }
      b[:hash] = sha("block #{h} #{parent} #{txs.map { |t| t[:hash] }.join}")
      parent = b[:hash]
      @blocks << [b, txs]
    end
    @done = @requests.values.reject { |q| q[:status] == 'pending' }
  end

  def block(h) = h.between?(1, HEIGHT) ? @blocks[h - 1] : nil
  def tip = @blocks.last[0]

  def request(id)
    q = @requests[id]
    return nil unless q
    if on?('only-64-requests-kept') && q[:status] != 'pending'
      return nil unless @done.last(64).include?(q)
    end
    q
  end

  def round = @updates.last[:round]
  def account(k) = @accounts[k]
end
