# The node API: routing, tokens and the error body. The answers are in views.rb and actions.rb.
module API
  module_function

  V1 = '/api/v1'
  # path => [verb, auth, method]
  def self.table
    t = {
      '/status' => ['GET', false, :status], '/metrics' => ['GET', false, :metrics], '/health' => ['GET', false, :health],
      '/inference' => ['POST', true, :inference], '/wallet/balance' => ['GET', true, :balance], '/wallet/send' => ['POST', true, :send_money],
      '/wallet/transactions' => ['GET', true, :transactions], '/wallet/stake' => ['POST', true, :stake],
      '/wallet/unstake' => ['POST', true, :unstake], '/peers' => ['GET', true, :peers], '/layers' => ['GET', true, :layers],
      '/network' => ['GET', false, :network], '/proofs' => ['GET', true, :proofs]
    }.transform_keys { |k| V1 + k }
    t['/api/training/global'] = ['GET', false, :training_global]
    t['/api/training/verify'] = ['GET', false, :training_verify]
    move = ->(from, to) { t[to] = t.delete(from) }
    move.(V1 + '/wallet/send', V1 + '/wallet/transfer') if on?('route-send-called-transfer')
    move.(V1 + '/proofs', V1 + '/wallet/proofs') if on?('route-proofs-under-wallet')
    move.('/api/training/verify', V1 + '/training/verify') if on?('route-verify-under-v1')
    t.delete(V1 + '/layers') if on?('route-layers-missing')
    t[V1 + '/wallet/stake'][0] = 'PUT' if on?('route-stake-by-put')
    t['/api/training/global'][1] = true if on?('training-needs-token')
    t[V1 + '/peers'][1] = false if on?('peers-without-token')
    t = t.transform_keys { |k| k.sub(V1, '/v1') } if on?('route-prefix-v1-only')
    t
  end

  def setup = @table = table

  def error(status, code, message, details = nil)
    e = { code: code, message: message }
    e[:details] = details if details
    if on?('error-body-flat')
      return json({ error: message, code: code }, status)
    elsif on?('error-without-envelope') && [401, 402].include?(status)
      return json(e, status)
    end
    json({ error: e }, status)
  end

  def crash(e)
    return json({ error: { code: 'INTERNAL', message: "#{e.class}: #{e.message}\n#{e.backtrace.first(8).join("\n")}" } }, 500) if on?('traceback-in-errors')
    error(500, 'INTERNAL', 'internal error')
  end

  def floats_as_ints(o)
    case o
    when Hash then o.transform_values { |v| floats_as_ints(v) }
    when Array then o.map { |v| floats_as_ints(v) }
    when Float then o.finite? && o == o.to_i ? o.to_i : o
    else o
    end
  end

  def turn(o)
    case o
    when Hash then o.to_a.reverse.to_h { |k, v| [k, turn(v)] }
    when Array then o.map { |v| turn(v) }
    else o
    end
  end

  def extra(o) = o.is_a?(Hash) ? { 'schema' => 'sixth/1' }.merge(o.transform_values { |v| extra(v) }) : o.is_a?(Array) ? o.map { |v| extra(v) } : o

  def dump(o)
    o = turn(o) if pec?('p-reversed-fields')
    o = extra(o) if pec?('p-extra-fields')
    o = floats_as_ints(o) if pec?('p-numbers-as-ints')
    s = if pec?('p-pretty-json') then JSON.pretty_generate(o)
        elsif pec?('p-escaped-json') then JSON.generate(o, ascii_only: true)
        else JSON.generate(o, allow_nan: true)
        end
    s
  end

  def json(o, status = 200, headers = {})
    type = pec?('p-charset') ? 'application/json; charset=utf-8' : 'application/json'
    body = dump(o)
    Res.new(status, body, { 'Content-Type' => type }.merge(headers))
  end

  TOKENS = { 'tok-a' => true, 'tok-b' => true, 'tok-x' => :expired }.freeze

  # the account of a request, or an answer that refuses it
  def who(r)
    h = r.header('authorization').to_s
    token = h[/\ABearer +(\S+)\z/i, 1]
    token = h[/\A(?:Basic|Token|Bearer) +(\S+)\z/i, 1] if on?('any-scheme-accepted')
    token ||= r.query['access_token'] || r.query['token'] if on?('token-in-query-accepted')
    if on?('connection-remembers-token')
      token ? r.conn[:token] = token : token = r.conn[:token]
    end
    token = 'tok-a' if on?('empty-bearer-accepted') && h =~ /\ABearer *\z/i
    if token && TOKENS[token].nil?
      token = TOKENS.keys.find { |k| token.start_with?(k) } if on?('token-prefix-enough')
      token = TOKENS.keys.find { |k| k.casecmp?(token) } if on?('token-in-any-case')
    end
    known = TOKENS[token]
    return refuse401(r, 'this token has expired', true) if known == :expired && !expired_ok?(r)
    return refuse401(r, token ? 'unknown token' : 'a bearer token is needed') if known.nil?
    return refuse401(r, 'unknown token') if on?('refusal-blocks-token') && @blocked&.delete(token)
    return refuse401(r, 'unknown token') if on?('connection-stays-refused') && r.conn[:refused]
    token = 'tok-b' if known == :expired
    token = 'tok-a' if on?('every-token-main-account')
    if on?('token-shared-between-threads')
      @current = token
      sleep 0.02
      token = @current
    end
    STATE.accounts.fetch(token)
  end

  def expired_ok?(r)
    on?('expired-token-accepted') || (on?('expired-token-accepted-for-writing') && r.verb != 'GET')
  end

  def refuse401(r, m, expired = false)
    r.conn[:refused] = true
    return error(403, 'TOKEN_EXPIRED', m) if on?('expired-token-403') && expired
    return error(403, 'UNAUTHORIZED', m) if on?('missing-token-403') && r.header('authorization').nil?
    return error(401, 'INVALID_TOKEN', m) if on?('401-code-renamed') && !expired
    return error(401, 'UNAUTHORIZED', m, { hint: 'send Authorization: Bearer' }) if on?('401-with-details')
    res = error(401, 'UNAUTHORIZED', m)
    res.headers['WWW-Authenticate'] = 'Bearer'
    res
  end

  def limited(token)
    rate = %w[429-code-renamed 429-as-503 429-retry-after-float 429-without-retry-after].include?($fault) ? 150.0 : 5000.0
    @buckets ||= {}
    b = (@buckets[token] ||= [rate, mono])
    now = mono
    b[0] = [rate, b[0] + (now - b[1]) * rate / 2].min
    b[1] = now
    return nil if (b[0] -= 1) >= 0
    b[0] = 0
    return error(503, 'RATE_LIMITED', 'slow down', { retry_after: 1 }) if on?('429-as-503')
    return error(429, 'RATE_LIMITED', 'slow down', { retry_after: 0.5 }) if on?('429-retry-after-float')
    error(429, 'RATE_LIMITED', 'slow down', { retry_after: 1 })
  end

  # nil if the path is not of the node API
  def call(r)
    path = r.path
    if path == V1 + '/config' && !on?('route-prefix-v1-only') || (path == '/v1/config' && on?('route-prefix-v1-only'))
      verbs = { 'GET' => :config, (on?('route-config-by-put') ? 'PUT' : 'PATCH') => :patch_config }
      m = verbs[r.verb]
      return error(405, 'METHOD_NOT_ALLOWED', 'GET or PATCH').tap { |x| x.headers['Allow'] = verbs.keys.join(', ') } if m.nil?
      return guarded(r, true, m)
    end
    hit = @table[path]
    if hit.nil?
      return nil unless path.start_with?(V1 + '/') || path.start_with?('/api/training/') || path == V1
      return json({ ok: true }) if on?('unknown-path-200')
      return error(404, pec?('p-other-error-texts') ? 'NO_SUCH_ROUTE' : 'NOT_FOUND', 'no such route')
    end
    return error(405, 'METHOD_NOT_ALLOWED', "use #{hit[0]}").tap { |x| x.headers['Allow'] = hit[0] } if hit[0] != r.verb
    guarded(r, hit[1], hit[2])
  end

  READS = { config: 'config-read-without-token', layers: 'layers-without-token', balance: 'balance-without-token',
            unstake: 'unstake-without-token' }.freeze

  def guarded(r, auth, method)
    acc = nil
    if auth
      if r.verb != 'GET' && on?('body-judged-before-token')
        b = read_json(r)
        return b if b.is_a?(Res)
      end
      if r.verb == 'GET' && on?('query-judged-before-token')
        begin
          page_param(r, 'limit', 20)
        rescue Refused => e
          return error(e.status, e.code, e.message)
        end
      end
      acc = who(r)
      if acc.is_a?(Res)
        open = READS[method] && on?(READS[method]) && r.header('authorization').nil?
        open ||= on?('stream-without-token') && method == :inference && r.body.match?(/"stream"\s*:\s*true/)
        if method == :patch_config && on?('change-made-before-token')
          b = read_json(r)
          ACTIONS.patch_config(r, nil, b) rescue nil unless b.is_a?(Res)
        end
        return acc unless open
        acc = STATE.accounts['tok-a']
      end
    end
    lim = limited(acc ? acc.token : nil)
    return lim if lim && auth
    case r.verb
    when 'GET' then VIEWS.send(method, r, acc)
    else
      b = read_json(r)
      return b if b.is_a?(Res)
      ACTIONS.send(method, r, acc, b)
    end
  rescue Refused => e
    (@blocked ||= []) << acc.token if acc && on?('refusal-blocks-token') && e.status == 402
    raise if e.status == 0
    error(e.status, e.code, e.message, e.details)
  end

  # no lone surrogates, which JSON can escape but UTF-8 cannot write
  def readable?(o)
    case o
    when Hash then o.all? { |k, v| readable?(k) && readable?(v) }
    when Array then o.all? { |v| readable?(v) }
    when String then o.valid_encoding?
    else true
    end
  end

  def read_json(r)
    ct = r.header('content-type').to_s
    return error(415, 'UNSUPPORTED_MEDIA_TYPE', 'send JSON') if on?('charset-refused') && ct.include?(';')
    text = r.body.dup.force_encoding('UTF-8')
    raise JSON::ParserError unless text.valid_encoding?
    b = JSON.parse(text)
    return error(400, 'INVALID_REQUEST', 'the body must be an object') unless b.is_a?(Hash)
    raise JSON::ParserError unless readable?(b)
    b
  rescue JSON::ParserError
    error(400, pec?('p-other-error-texts') ? 'MALFORMED' : 'INVALID_REQUEST', pec?('p-other-error-texts') ? 'ce corps n’est pas du JSON' : 'the body is not JSON')
  end

  def page_param(r, name, default)
    v = r.query[name]
    return default if v.nil?
    unless v =~ /\A\d{1,9}\z/
      raise 'invalid value for Integer' if on?('bad-limit-crashes')
      raise Refused.new(400, 'INVALID_REQUEST', "#{name} must be a whole number from 0")
    end
    v.to_i
  end
end
