# A small HTTP/1.1 server: one thread for each connection.
class Req
  attr_accessor :verb, :path, :raw_query, :headers, :body, :conn, :head_only
  def header(n) = headers[n]

  def query
    @query ||= begin
      h = {}
      raw_query.to_s.split('&').each do |kv|
        k, v = kv.split('=', 2)
        next if k.nil?
        if on?('query-not-decoded')
          h[k] ||= v.to_s
        else
          h[Req.unescape(k)] ||= Req.unescape(v.to_s)
        end
        break if on?('query-first-parameter-only')
      end
      h
    end
  end

  def self.unescape(s)
    s = s.tr('+', ' ').b.gsub(/%(\h\h)/) { $1.hex.chr }.force_encoding('UTF-8')
    s.valid_encoding? ? s : s.scrub('?')
  end
end

class Res
  attr_accessor :status, :headers, :body, :stream
  def initialize(status, body, headers = {}, &stream)
    @status = status; @body = body; @headers = headers; @stream = stream
  end
end

class HttpServer
  REASON = { 200 => 'OK', 201 => 'Created', 202 => 'Accepted', 302 => 'Found', 307 => 'Temporary Redirect', 308 => 'Permanent Redirect', 400 => 'Bad Request',
             401 => 'Unauthorized', 402 => 'Payment Required', 403 => 'Forbidden', 404 => 'Not Found', 405 => 'Method Not Allowed',
             409 => 'Conflict', 410 => 'Gone', 411 => 'Length Required', 413 => 'Content Too Large', 415 => 'Unsupported Media Type',
             422 => 'Unprocessable Entity', 429 => 'Too Many Requests', 500 => 'Internal Server Error', 501 => 'Not Implemented',
             503 => 'Service Unavailable' }
  MAX_BODY = 8 << 20

  def initialize(port, &handler)
    @server = TCPServer.new('127.0.0.1', port)
    @server.setsockopt(Socket::SOL_SOCKET, Socket::SO_REUSEADDR, true)
    @server.listen(512)
    @handler = handler
  end

  def run
    Thread.new do
      loop do
        s = @server.accept
        Thread.new(s) { |c| serve(c) }
      rescue IOError, SystemCallError
        sleep 0.01
      end
    end
  end

  class Broken < StandardError
    attr_reader :status
    def initialize(status, m) = (@status = status; super(m))
  end

  def read_request(s, conn)
    line = s.gets("\n", 16_384) or return nil
    line = s.gets("\n", 16_384) while line == "\r\n"
    return nil if line.nil?
    STATE.bytes_in(line.bytesize)
    m = line.match(%r{\A([A-Z]+) (\S+) HTTP/1\.([01])\r?\n\z}) or raise Broken.new(400, 'bad request line')
    r = Req.new
    r.verb = m[1]
    target = m[2].sub(%r{\Ahttps?://[^/]*}, '')
    r.path, r.raw_query = target.sub(/#.*/, '').split('?', 2)
    r.path = Req.unescape(r.path.to_s.gsub('+', '%2B'))
    r.headers = {}
    r.conn = conn
    conn[:keep] = m[3] == '1'
    n = 0
    loop do
      l = s.gets("\n", 65_536) or return nil
      STATE.bytes_in(l.bytesize)
      l = l.chomp
      break if l.empty?
      n += 1
      raise Broken.new(400, 'too many headers') if n > 200
      k, v = l.split(':', 2)
      raise Broken.new(400, 'bad header') if v.nil?
      k = on?('header-names-exact') && k =~ /\Aauthorization\z/i && k != 'Authorization' ? "x-#{k}" : k
      r.headers[k.downcase] = v.strip
    end
    c = r.headers['connection'].to_s.downcase
    conn[:keep] = false if c.include?('close')
    conn[:keep] = true if c.include?('keep-alive')
    s.write("HTTP/1.1 100 Continue\r\n\r\n") if r.headers['expect'].to_s.downcase == '100-continue'
    r.body = ''.b
    if r.headers['transfer-encoding'].to_s.downcase.include?('chunked')
      loop do
        l = s.gets("\n", 1024) or return nil
        size = l[/\A\h+/]&.hex or raise Broken.new(400, 'bad chunk')
        break (while (t = s.gets("\n", 8192)) && t.chomp != ''; end) if size == 0
        raise Broken.new(413, 'body too large') if r.body.bytesize + size > MAX_BODY
        r.body << s.read(size)
        s.gets("\n", 8)
      end
      r.body = ''.b if on?('chunked-body-ignored')
    elsif (len = r.headers['content-length'])
      raise Broken.new(400, 'bad length') unless len =~ /\A\d+\z/
      raise Broken.new(413, 'body too large') if len.to_i > MAX_BODY
      r.body = s.read(len.to_i) || ''.b
      return nil if r.body.bytesize < len.to_i
    end
    STATE.bytes_in(r.body.bytesize)
    r.head_only = r.verb == 'HEAD'
    r
  end

  def serve(s)
    s.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
    STATE.connection(1)
    conn = {}
    loop do
      begin
        r = read_request(s, conn)
        break if r.nil?
        r.verb = 'GET' if r.head_only
        res = begin
          @handler.call(r)
        rescue StandardError => e
          warn "#{e.class}: #{e.message} #{e.backtrace.first(4).join(' | ')}"
          API.crash(e)
        end
      rescue Broken => e
        conn[:keep] = false
        res = API.error(e.status, 'BAD_REQUEST', e.message)
        r = Req.new
      end
      sleep 0.2 if pec?('p-slow-answers')
      conn[:keep] = false if pec?('p-connection-close')
      write(s, r, res, conn)
      break unless conn[:keep]
    end
  rescue IOError, SystemCallError
    nil
  ensure
    STATE.connection(-1)
    s.close rescue nil
  end

  def write(s, r, res, conn)
    h = { 'Date' => Time.now.utc.httpdate, 'Server' => 'sixth' }.merge(res.headers)
    h['X-Request-Id'] = SecureRandom.hex(6) if pec?('p-extra-headers')
    h['Cache-Control'] = 'no-store' if pec?('p-extra-headers')
    chunked = res.stream || (pec?('p-chunked-bodies') && !r.head_only)
    if chunked
      h['Transfer-Encoding'] = 'chunked'
    else
      body = res.body.to_s
      h['Content-Length'] = body.bytesize.to_s
    end
    h['Connection'] = conn[:keep] ? 'keep-alive' : 'close'
    out = +"HTTP/1.1 #{res.status} #{REASON[res.status] || 'Status'}\r\n"
    h.each do |k, v|
      k = k.downcase if pec?('p-lower-case-headers')
      out << "#{k}: #{v}\r\n"
    end
    out << "\r\n"
    out = out.b
    if res.stream && !r.head_only
      s.write(out)
      put = ->(t) { t = t.b; STATE.bytes_out(t.bytesize); s.write("#{t.bytesize.to_s(16)}\r\n".b + t + "\r\n".b) unless t.empty? }
      res.stream.call(put)
      s.write("0\r\n\r\n")
    elsif chunked
      s.write(out)
      b = res.body.to_s.b
      b.scan(/.{1,100}/mn) { |t| s.write("#{t.bytesize.to_s(16)}\r\n".b + t + "\r\n".b) }
      s.write("0\r\n\r\n")
    else
      out << res.body.to_s.b unless r.head_only
      STATE.bytes_out(out.bytesize)
      s.write(out)
    end
  end
end
