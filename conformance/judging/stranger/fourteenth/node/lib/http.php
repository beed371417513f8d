<?php
declare(strict_types=1);

final class Request
{
    public array $query = [];
    public ?array $account = null;
    public string $rawQuery = '';
    public function __construct(public string $method, public string $path, public array $headers, public string $body, public HttpConn $conn) {}
    public function header(string $n): ?string { return $this->headers[$n] ?? null; }
}

/** HTTP/1.1: keep-alive, bodies with a length or in chunks, one request at a time. */
final class HttpConn extends Conn
{
    private string $in = '';
    private bool $busy = false;
    private ?array $head = null;
    private bool $chunkedOut = false;
    private bool $isHead = false;
    private bool $keep = true;
    public int $served = 0;
    public ?array $lastAccount = null;   // only a faulty node looks at this
    public bool $refusedBefore = false;
    public static int $open = 0;

    public function __construct($sock)
    {
        parent::__construct($sock);
        self::$open++;
        if (F('lim-conns-8') && self::$open > 8) $this->close();
        if (F('lim-conns-3') && self::$open > 3) { $this->send("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"); $this->closing = true; $this->flush(); }
    }

    public function onClose(): void { self::$open--; }

    public function onData(string $data): void
    {
        $this->in .= $data;
        $this->next();
    }

    private function bad(int $status, string $text): void
    {
        $this->busy = true;
        $this->keep = false;
        $this->respond($status, ['Content-Type' => 'application/json'], jenc(['error' => ['code' => 'BAD_REQUEST', 'message' => $text]]));
    }

    private function next(): void
    {
        while (!$this->busy && !$this->dead && !$this->closing) {
            if ($this->head === null) {
                $this->in = ltrim($this->in, "\r\n");
                $end = strpos($this->in, "\r\n\r\n");
                if ($end === false) {
                    if (strlen($this->in) > 65536) $this->bad(431, 'the head of the request is too long');
                    return;
                }
                $lines = explode("\r\n", substr($this->in, 0, $end));
                $this->in = substr($this->in, $end + 4);
                if (!preg_match('#^([A-Za-z]+) (\S+) HTTP/1\.([01])$#', array_shift($lines), $m)) { $this->bad(400, 'not a request line'); return; }
                $h = [];
                foreach ($lines as $l) {
                    $p = strpos($l, ':');
                    if ($p === false) { $this->bad(400, 'not a header line'); return; }
                    $name = substr($l, 0, $p);
                    if (!F('hdr-case-auth') || strtolower($name) !== 'authorization' || $name === 'Authorization') $h[strtolower($name)] = trim(substr($l, $p + 1));
                }
                $this->head = ['m' => $m[1], 't' => $m[2], 'v' => $m[3], 'h' => $h];
                if (strtolower($h['expect'] ?? '') === '100-continue') $this->send("HTTP/1.1 100 Continue\r\n\r\n");
            }
            $h = $this->head['h'];
            $chunked = str_contains(strtolower($h['transfer-encoding'] ?? ''), 'chunked');
            if ($chunked) {
                $body = $this->chunks();
                if ($body === null) return;
                if (F('lim-chunked-411')) { $this->head = null; $this->bad(411, 'a length is required'); return; }
                if (F('lim-chunk-first') && $this->firstChunk !== null) $body = $this->firstChunk;
            } else {
                $len = $h['content-length'] ?? '0';
                if (!ctype_digit($len)) { $this->bad(400, 'not a length'); return; }
                if ((int)$len > (F('lim-body-1k') ? 1024 : 4 << 20)) { $this->bad(413, 'the body is too large'); return; }
                if (strlen($this->in) < (int)$len) return;
                $body = substr($this->in, 0, (int)$len);
                $this->in = substr($this->in, (int)$len);
            }
            $this->dispatch($body);
        }
    }

    private ?string $firstChunk = null;

    private function chunks(): ?string
    {
        $pos = 0; $body = ''; $this->firstChunk = null;
        while (true) {
            $nl = strpos($this->in, "\r\n", $pos);
            if ($nl === false) return null;
            $hex = trim(explode(';', substr($this->in, $pos, $nl - $pos))[0]);
            if (!ctype_xdigit($hex) || strlen($hex) > 8) { $this->head = null; $this->bad(400, 'not a chunk'); return null; }
            $n = hexdec($hex);
            if ($n === 0) {
                $end = strpos($this->in, "\r\n", $nl + 2);
                if ($end === false) return null;
                while ($end !== $nl + 2) {       // trailers
                    $nl = $end - 0;
                    $end = strpos($this->in, "\r\n", $nl + 2);
                    if ($end === false) return null;
                }
                $this->in = substr($this->in, $end + 2);
                return $body;
            }
            if (strlen($this->in) < $nl + 2 + $n + 2) {
                if (strlen($this->in) > 8 << 20) { $this->head = null; $this->bad(413, 'the body is too large'); }
                return null;
            }
            $piece = substr($this->in, $nl + 2, (int)$n);
            $this->firstChunk ??= $piece;
            $body .= $piece;
            $pos = $nl + 2 + (int)$n + 2;
        }
    }

    private function dispatch(string $body): void
    {
        $h = $this->head;
        $this->head = null;
        $this->busy = true;
        $c = strtolower($h['h']['connection'] ?? '');
        $this->keep = $h['v'] === '1' ? !str_contains($c, 'close') : str_contains($c, 'keep-alive');
        if (F('lim-keepalive-5') && $this->served >= 4) { if ($this->served > 4) { $this->close(); return; } }
        $this->isHead = $h['m'] === 'HEAD';
        [$path, $q] = array_pad(explode('?', $h['t'], 2), 2, '');
        $req = new Request($h['m'], $path, $h['h'], $body, $this);
        $req->rawQuery = $q;
        foreach ($q === '' ? [] : explode('&', $q) as $pair) {
            [$k, $v] = array_pad(explode('=', $pair, 2), 2, '');
            if (!F('q-no-decode')) { $k = urldecode($k); $v = urldecode($v); }
            $req->query[$k] = $v;
        }
        $this->served++;
        Router::handle($req);
    }

    public function respond(int $status, array $headers, string $body): void
    {
        static $names = [200 => 'OK', 201 => 'Created', 202 => 'Accepted', 204 => 'No Content', 302 => 'Found', 307 => 'Temporary Redirect', 308 => 'Permanent Redirect', 301 => 'Moved Permanently', 400 => 'Bad Request', 401 => 'Unauthorized', 402 => 'Payment Required', 403 => 'Forbidden', 404 => 'Not Found', 405 => 'Method Not Allowed', 409 => 'Conflict', 410 => 'Gone', 413 => 'Payload Too Large', 415 => 'Unsupported Media Type', 422 => 'Unprocessable Content', 429 => 'Too Many Requests', 500 => 'Internal Server Error', 503 => 'Service Unavailable'];
        $s = "HTTP/1.1 $status " . ($names[$status] ?? 'Other') . "\r\n";
        if (P('http-lower')) $headers = array_change_key_case($headers);
        $headers['Date'] = gmdate('D, d M Y H:i:s') . ' GMT';
        if (P('server-header')) $headers['Server'] = 'kestrel';
        if (P('close-always')) $this->keep = false;
        if (P('no-store')) $headers['Cache-Control'] = 'no-store';
        foreach ($headers as $k => $v) $s .= "$k: $v\r\n";
        $s .= 'Content-Length: ' . strlen($body) . "\r\n" . ($this->keep ? '' : "Connection: close\r\n") . "\r\n";
        if ($status >= 400) $this->refusedBefore = true;
        $this->send($this->isHead ? $s : $s . $body);
        $this->finish();
    }

    public function startStream(array $headers): void
    {
        $this->chunkedOut = !F('sse-never-ends') || true;
        $s = "HTTP/1.1 200 OK\r\nDate: " . gmdate('D, d M Y H:i:s') . " GMT\r\nTransfer-Encoding: chunked\r\nCache-Control: no-cache\r\n";
        foreach ($headers as $k => $v) $s .= "$k: $v\r\n";
        $this->send($s . ($this->keep ? '' : "Connection: close\r\n") . "\r\n");
    }

    public function chunk(string $data): void { if ($data !== '') $this->send(dechex(strlen($data)) . "\r\n" . $data . "\r\n"); }

    public function endStream(): void
    {
        $this->send("0\r\n\r\n");
        $this->finish();
    }

    private function finish(): void
    {
        $this->busy = false;
        if (!$this->keep) { $this->closing = true; $this->flush(); return; }
        if ($this->in !== '') $this->next();
    }
}
