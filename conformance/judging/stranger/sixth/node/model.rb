# The toy model: six layers y = x + 0.1*tanh(W x), hidden size 32, and a head to 48 logits.
module Model
  LAYERS = 6
  HIDDEN = 32
  VOCAB = 48
  HELD = [3, 4, 5].freeze
  PARAMS = LAYERS * HIDDEN * HIDDEN + HIDDEN * VOCAB
  module_function

  def numbers(seed, n)
    x = Digest::SHA256.digest(seed).unpack1('Q<') | 1
    Array.new(n) do
      x ^= (x << 13) & 0xffffffffffffffff; x ^= x >> 7; x ^= (x << 17) & 0xffffffffffffffff
      ((x >> 11) / 9007199254740992.0 - 0.5) * 0.5
    end
  end

  def w(l) = (@w ||= {})[l] ||= numbers("layer-#{l}", HIDDEN * HIDDEN).each_slice(HIDDEN).to_a
  def head = @head ||= numbers('head', HIDDEN * VOCAB).each_slice(HIDDEN).to_a
  def raw(l) = w(l).flatten.pack('e*')

  def dot(a, b)
    s = 0.0; i = 0; n = a.size
    while i < n
      s += a[i] * b[i]; i += 1
    end
    s
  end

  # rows: array of vectors; returns the rows behind each layer and the tanh values for the way back
  def forward(rows, layers)
    kept = []
    layers.each do |l|
      m = w(l)
      t = rows.map { |x| m.map { |r| Math.tanh(dot(r, x)) } }
      kept << [l, t]
      rows = rows.each_with_index.map { |x, i| x.zip(t[i]).map { |a, b| a + 0.1 * b } }
    end
    [rows, kept]
  end

  def logits(rows) = rows.map { |x| head.map { |r| dot(r, x) } }

  def head_back(grads)
    ht = head.transpose
    grads.map { |g| ht.map { |c| dot(c, g) } }
  end

  def backward(grads, kept)
    kept.reverse_each do |l, t|
      mt = w(l).transpose
      grads = grads.each_with_index.map do |g, i|
        d = g.zip(t[i]).map { |a, b| 0.1 * a * (1 - b * b) }
        g.each_with_index.map { |a, k| a + dot(mt[k], d) }
      end
    end
    grads
  end

  def loss(rows, labels)
    total = 0.0; n = 0
    rows.each_with_index do |r, i|
      y = labels[i]
      next if y == -100
      mx = r.max
      total += mx + Math.log(r.sum { |v| Math.exp(v - mx) }) - r[y]
      n += 1
    end
    n == 0 ? 0.0 : total / n
  end

  WORDS = %w[amber basin cedar delta ember fjord grove harbor island jungle kettle lantern meadow needle orchard
             pebble quarry river saddle timber umbra valley willow xenon yonder zephyr anchor bridge canyon dune
             engine forest garden hollow ivory jasper knoll ledge marble nectar opal prairie quartz ridge stone
             thicket upland vessel winter yarrow]
  # token i of the continuation of a prompt
  def token(prompt, i)
    h = Digest::MD5.digest("#{i}|#{prompt}").unpack1('L<')
    (i == 0 ? '' : ' ') + WORDS[h % WORDS.size]
  end
end
