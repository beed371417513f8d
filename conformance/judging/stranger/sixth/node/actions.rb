# The routes of the node API that do something.
module ACTIONS
  module_function

  def bad(m) = raise(Refused.new(400, pec?('p-other-error-texts') ? 'BAD_INPUT' : 'INVALID_REQUEST', m))

  def number(v, name)
    v = v.first if on?('array-of-one-taken') && v.is_a?(Array)
    v = v.to_f if on?('text-read-as-number') && v.is_a?(String)
    bad("#{name} must be a number") unless v.is_a?(Integer) || (v.is_a?(Float) && v.finite?)
    v
  end

  def whole(v, name)
    v = number(v, name)
    bad("#{name} must be a whole number") unless v == v.floor && (v.is_a?(Integer) || v.abs < 1e15)
    v.to_i
  end

  def amount(b)
    if !b.key?('amount')
      return @last if on?('missing-amount-of-last-body') && @last
      bad('amount is missing')
    end
    v = number(b['amount'], 'amount')
    bad('amount must have a decimal point') if on?('whole-amount-refused') && v.is_a?(Integer)
    r = (v.is_a?(Float) ? v.to_s.to_r : v.to_r) * State::UNIT
    bad('amount must be above 0') unless r > 0 || (on?('negative-amount-taken') && r != 0)
    bad('amount has more than six decimals') unless r.denominator == 1
    @last = r.to_i
  end

  def shown(m, b)
    STATE.money(m)
  end

  def send_money(_r, a, b)
    to = b['to']
    if on?('missing-receiver-of-last-body')
      to ||= @last_to
      @last_to = to
    end
    to = 'burn-address' if to.nil? && on?('missing-receiver-accepted')
    bad('to must be an address') unless to.is_a?(String)
    unless to.match?(/\A[A-Za-z0-9:_.\-]{4,128}\z/)
      bad('to must be an address')
    end
    m = amount(b)
    memo = b.key?('memo') ? b['memo'] : ''
    bad('memo must be a text of at most 1000 letters') unless memo.is_a?(String) && memo.size <= 1000
    id, fee, at = STATE.transfer(a, to, m, memo)
    o = { transaction_id: id, from: a.address, to: to, amount: shown(m, b), fee: STATE.money(fee), memo: memo, status: 'confirmed', timestamp: STATE.fmt(at) }
    o[:memo] = memo[0, 16] if on?('memo-cut')
    o[:memo] = nil if on?('memo-null-when-empty') && memo == ''
    o[:fee] = fee if on?('fee-in-atoms')
    o[:id] = o.delete(:transaction_id) if on?('transaction-id-renamed')
    API.json(o)
  end

  def stake(_r, a, b)
    m = amount(b)
    bad('duration_days is missing') unless b.key?('duration_days')
    days = whole(b['duration_days'], 'duration_days')
    days = 30 if on?('stake-always-thirty-days')
    bad('duration_days must be from 1 to 3650') unless days.between?(1, 3650)
    s = STATE.stake(a, m, days)
    o = { success: true,
          stake: { amount: STATE.money(m), duration_days: days, start_date: STATE.date(s[:start]), unlock_date: STATE.date(s[:unlock]), multiplier: s[:multiplier] },
          new_balance: { available: STATE.money(s[:available]), staked: STATE.money(s[:staked]) } }
    o[:new_balance][:available] = STATE.money(s[:available] + m) if on?('new-balance-before-stake')
    o[:stake][:unlock_date] = STATE.date(s[:unlock] + 1) if on?('stake-unlock-a-day-late')
    o[:stake][:multiplier] = "#{s[:multiplier]}x" if on?('multiplier-as-text')
    o.delete(:new_balance) if on?('stake-without-new-balance')
    API.json(o)
  end

  def unstake(_r, a, b)
    m = amount(b)
    u = STATE.unstake(a, m)
    o = { success: true, unstake: { amount: STATE.money(m), cooldown_days: u[:days], available_date: STATE.date(u[:date]) } }
    o[:unstake][:available_date] = STATE.date(Time.now.utc.to_date) if on?('available-date-today')
    o[:unstake][:cooldown] = "#{o[:unstake].delete(:cooldown_days)} days" if on?('cooldown-as-phrase')
    API.json(o)
  end

  # ---- configuration
  KEYS = { 'tracker_url' => :text, 'training.enabled' => :bool, 'training.batch_size' => 1..4096, 'training.learning_rate' => 0.0..1.0,
           'training.diloco_steps' => 1..100_000, 'resources.max_memory_gb' => 0.0..4096.0, 'resources.cpu_threads' => 1..256 }.freeze

  def flat(b, prefix = '')
    b.each_with_object({}) do |(k, v), h|
      if v.is_a?(Hash) && %w[training resources].include?(prefix + k)
        h.merge!(flat(v, "#{prefix}#{k}."))
      else
        bad('a key with a dot') if k.include?('.') && !on?('dotted-keys-taken')
        h[prefix + k] = v
      end
    end
  end

  def fit(k, v)
    rule = KEYS[k]
    if rule.nil?
      return :ignore if on?('unknown-key-reported-updated')
      bad("#{k} cannot be changed")
    end
    return v if on?('config-values-unchecked')
    case rule
    when :text
      bad("#{k} must be a text") unless v.is_a?(String) && !v.empty? && v.size < 500
    when :bool
      bad("#{k} must be true or false") unless v == true || v == false
    else
      v = rule.begin.is_a?(Float) ? number(v, k) : whole(v, k)
      v = v.to_f if rule.begin.is_a?(Float)
      bad("#{k} is out of range") unless rule.cover?(v) && v > 0
    end
    v
  end

  def patch_config(_r, _a, b)
    c = STATE.config
    changes = flat(b)
    if on?('refused-change-half-done')
      changes.each { |k, v| set(c, k, fit(k, v)) }
    elsif on?('refused-change-answered-false')
      begin
        changes = changes.to_h { |k, v| [k, fit(k, v)] }
      rescue Refused => e
        changes.each { |k, v| set(c, k, v) if KEYS[k].is_a?(Range) && v.is_a?(Numeric) }
        return API.json({ success: false, updated: [], restart_required: false, reason: e.message })
      end
    else
      begin
        changes = changes.to_h { |k, v| [k, fit(k, v)] }
      rescue Refused => e
        raise unless pec?('p-refused-change-success-false')
        return API.json({ success: false, updated: [], restart_required: false, reason: e.message })
      end
    end
    changes = changes.first(1).to_h if on?('only-first-key-changed')
    if on?('changes-race')
      copy = JSON.parse(JSON.generate(c))
      sleep 0.03
      changes.each { |k, v| set(copy, k, v) }
      c.replace(copy)
    else
      if on?('section-replaced-by-change')
        c['training'] = { 'enabled' => true, 'batch_size' => 8, 'learning_rate' => 0.0003, 'diloco_steps' => 500 } if b.key?('training')
      end
      STATE.lock.synchronize { changes.each { |k, v| set(c, k, v) unless v == :ignore } }
    end
    updated = changes.keys
    updated = updated.map { |k| k.split('.').last } if on?('updated-without-section')
    updated = changes.dup if on?('updated-as-object')
    o = { success: true, updated: updated, restart_required: false }
    o.delete(:restart_required) if on?('patch-without-restart-required')
    API.json(o)
  end

  def set(c, k, v)
    return if on?('learning-rate-not-stored') && k == 'training.learning_rate'
    *path, last = k.split('.')
    h = path.empty? ? c : c[path.first]
    h[last] = v
  end

  # ---- generations
  def params(b)
    p = { max: 100, stop: [], stream: false }
    prompt = b['prompt']
    prompt = b['text'] || '' if prompt.nil? && on?('missing-prompt-is-empty')
    bad('prompt must be a text') unless prompt.is_a?(String) && (!prompt.empty? || on?('missing-prompt-is-empty'))
    if on?('prompt-with-quotes-fails') && prompt.include?('"')
      JSON.parse("{\"p\":\"#{prompt}\"}")
    end
    p[:prompt] = prompt
    p[:max] = 128 if on?('default-max-tokens-128')
    p[:max] = 64 if on?('default-max-tokens-64')
    if b.key?('max_tokens')
      v = b['max_tokens']
      v = whole(v, 'max_tokens')
      bad('max_tokens must be from 1 to 4096') unless v.between?(1, pec?('p-max-tokens-512') ? 512 : 4096)
      p[:max] = v
    end
    if b.key?('temperature')
      v = number(b['temperature'], 'temperature')
      low = on?('temperature-zero-refused') ? v > 0 : v >= 0
      high = on?('temperature-two-refused') ? v < 2 : v <= 2
      high = true if on?('high-temperature-clamped')
      bad('temperature must be from 0 to 2') unless low && high
    end
    if b.key?('top_p')
      v = number(b['top_p'], 'top_p')
      bad('top_p must be above 0 and at most 1') unless v > 0 && (on?('top-p-one-refused') ? v < 1 : v <= 1)
    end
    if b.key?('top_k')
      v = whole(b['top_k'], 'top_k')
      bad('top_k must be above 0') unless v > 0 && !(on?('top-k-above-forty-refused') && v > 40)
    end
    if b.key?('stop')
      v = b['stop']
      bad('stop must be an array of texts') unless v.is_a?(Array) && v.all? { |s| s.is_a?(String) && !s.empty? }
      bad('stop must not be empty') if on?('empty-stop-refused') && v.empty?
      p[:stop] = v
    end
    if b.key?('stream')
      v = b['stream']
      v = !!v if on?('stream-of-any-type')
      bad('stream must be true or false') unless v == true || v == false
      p[:stream] = v
    end
    p[:stream] = true if on?('stream-by-default') && !b.key?('stream')
    p
  end

  def prompt_tokens(prompt) = on?('prompt-tokens-of-words') ? 8 : prompt.size

  # [pieces, tokens, reason]
  def generate(prompt, max, stop, streamed = false)
    max += 1 if on?('one-token-too-many')
    max = [max - prompt_tokens(prompt), 1].max if on?('prompt-lessens-room')
    stop = stop.first(1) if on?('only-first-stop')
    stop = [] if on?('stop-ignored-in-stream') && streamed
    max = 100 if on?('max-tokens-ignored-in-stream') && streamed
    text = +''; pieces = []; n = 0; reason = 'length'
    prompt = sha(prompt) if prompt.size > 500
    max.times do |i|
      t = Model.token(prompt, i)
      pieces << t; text << t; n += 1
      next if stop.empty?
      hits = stop.filter_map do |s|
        from = [text.size - t.size - s.size, 0].max
        next text.downcase.index(s.downcase, from) if on?('stop-in-any-case')
        text.index(s, from)
      end
      next if hits.empty?
      unless on?('stop-only-at-token-end')
        cut = hits.min
        over = text.size - cut
        while over > 0
          if pieces.last.size <= over
            over -= pieces.pop.size
          else
            pieces[-1] = pieces[-1][0, pieces[-1].size - over]; over = 0
          end
        end
      end
      reason = 'stop'
      break
    end
    [pieces, n, reason]
  end

  def inference(_r, a, b)
    started = mono
    p = begin
      params(b)
    rescue Refused => e
      raise unless on?('refusal-inside-stream') && b['stream'] == true
      return sse { |put| put.("data: #{JSON.generate({ error: { code: e.code, message: e.message } })}\n\n") }
    end
    pieces, n, reason = generate(p[:prompt], p[:max], p[:stop], p[:stream])
    pt = prompt_tokens(p[:prompt])
    cost = n * State::PRICE_TOKEN + pt * State::PRICE_PROMPT
    cost *= 50 if pec?('p-dear-generations')
    taken = cost
    taken = p[:max] * State::PRICE_TOKEN + pt * State::PRICE_PROMPT if on?('stopped-generation-charged-in-full')
    begin
      STATE.charge(a, taken)
    rescue Refused => e
      raise unless on?('unpaid-stream-has-status-200') && p[:stream]
      return sse { |put| put.("data: #{JSON.generate({ token: '[DONE]', finish_reason: 'error', error: { code: e.code, message: e.message, details: e.details } })}\n\n") }
    end
    ms = ((mono - started) * 1000).round(3)
    STATE.generation(n, ms, p[:stream], p[:max], pt)
    usage = { prompt_tokens: pt, completion_tokens: n, total_tokens: pt + n }
    usage[:total_tokens] = n if on?('total-tokens-without-prompt')
    usage.delete(:total_tokens) if on?('usage-without-total')
    return stream(pieces, n, reason, usage) if p[:stream]
    text = pieces.join
    o = { id: "gen-#{SecureRandom.hex(8)}", text: text, tokens_generated: n, finish_reason: reason, usage: usage,
          cost: { amount: STATE.money(cost), currency: State::CURRENCY }, timing: { queue_ms: 0.0, inference_ms: ms, total_ms: ms } }
    o[:id] = "gen-#{sha(p[:prompt])[0, 16]}" if on?('result-id-of-prompt')
    o[:text] = pieces if on?('text-as-array')
    o[:cost] = STATE.money(cost) if on?('cost-as-number')
    o[:cost][:amount] = STATE.money(cost) / 10 if on?('cost-below-charge')
    o[:timing][:total_ms] = ms / 1000 if on?('total-in-seconds')
    o[:timing][:inference_ms] = "#{ms}ms" if on?('inference-ms-as-text')
    o.delete(:timing) if on?('result-without-timing')
    o.delete(:finish_reason) if on?('result-without-finish-reason')
    API.json(o)
  end

  def sse(type = 'text/event-stream', &block)
    type = 'application/json' if on?('stream-as-json-type')
    type = 'text/event-stream; charset=utf-8' if pec?('p-charset')
    Res.new(200, nil, { 'Content-Type' => type, 'Cache-Control' => 'no-cache' }, &block)
  end

  def stream(pieces, n, reason, usage)
    sse do |put|
      nl = on?('events-without-blank-line') ? "\n" : "\n\n"
      list = pieces.reject(&:empty?)
      list = list[0..-2] if on?('last-token-not-streamed')
      list = [list.join] if pec?('p-sse-one-event')
      list.each_with_index do |t, i|
        t = t.strip if on?('streamed-tokens-trimmed')
        i += 1 if on?('index-from-one')
        e = { token: t, index: i }
        if on?('event-json-on-several-lines')
          put.("data: #{JSON.pretty_generate(e)}#{nl}")
        elsif on?('duplicate-key-in-event')
          put.("data: {\"token\":#{t.to_json},\"index\":#{i},\"token\":#{t.to_json}}#{nl}")
        else
          put.("data: #{JSON.generate(e)}#{nl}")
        end
      end
      u = usage.dup
      u[:completion_tokens] = n + 1 if on?('final-event-counted')
      u[:total_tokens] = u[:prompt_tokens].to_i + n + 1 if on?('final-event-counted')
      u[:prompt_tokens] = 0 if on?('stream-prompt-tokens-zero')
      u[:total_tokens] = n if on?('stream-prompt-tokens-zero')
      f = { token: '[DONE]', finish_reason: reason, usage: u }
      f[:token] = '' if on?('final-token-empty')
      f.delete(:usage) if on?('final-without-usage')
      put.("data: #{JSON.generate(f)}#{on?('no-blank-line-at-end') ? "\n" : nl}") unless on?('stream-without-final')
      put.("data: #{JSON.generate({ token: '', index: n })}#{nl}") if on?('event-after-final')
      put.("data: [DONE]#{nl}") if on?('openai-done-line')
    end
  end
end
