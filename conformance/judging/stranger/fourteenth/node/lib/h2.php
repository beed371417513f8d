<?php
declare(strict_types=1);

/** One stream of an HTTP/2 connection. */
final class H2Stream
{
    public array $headers = [];
    public string $in = '';          // bytes of gRPC messages that are not complete yet
    public bool $endIn = false;
    public string $outData = '';
    public ?string $outTrailers = null;
    public int $window = 65535;
    public bool $done = false;       // everything is sent
    public mixed $call = null;       // of the server
    public mixed $cb = null;         // of the client
    public int $got = 0;
    public string $resp = '';
    public bool $headersSent = false;
}

/** Framing, flow control, PING and GOAWAY, for both roles. */
abstract class H2 extends Conn
{
    protected const PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    protected string $buf = '';
    protected int $pos = 0;
    /** @var H2Stream[] */ protected array $streams = [];
    protected Hpack $hpack;
    protected int $window = 65535;
    protected int $peerInitial = 65535;
    protected int $peerFrame = 16384;
    protected bool $started = false;
    protected int $last = 0;
    private int $unacked = 0;
    private ?array $cont = null;
    protected bool $goaway = false;
    private int $pings = 0;
    protected array $waiting = [];   // streams that have something to send

    public function __construct($sock)
    {
        parent::__construct($sock);
        $this->hpack = new Hpack();
    }

    protected function frame(int $type, int $flags, int $id, string $payload): void
    {
        $n = strlen($payload);
        $this->send(chr($n >> 16) . pack('nCCN', $n & 0xffff, $type, $flags, $id) . $payload);
    }

    protected function settings(): void
    {
        $max = F('h2-streams-4') ? 4 : (P('h2-streams-16') ? 16 : 1000);
        $window = F('h2-window-small') ? 65535 : 8 << 20;
        $this->frame(4, 0, 0, pack('nN', 3, $max) . pack('nN', 4, $window) . pack('nN', 5, P('h2-small-frames') ? 16384 : 1 << 20));
        if (!F('h2-window-small')) $this->frame(8, 0, 0, pack('N', 64 << 20));
    }

    protected function fail(int $code): void
    {
        $this->frame(7, 0, 0, pack('NN', $this->last, $code));
        $this->closing = true;
        if ($this->out === '') $this->close();
    }

    public function onData(string $data): void
    {
        $this->buf = $this->pos === strlen($this->buf) ? $data : ($this->pos > 0 ? substr($this->buf, $this->pos) : $this->buf) . $data;
        $this->pos = 0;
        if (!$this->started && !$this->begin()) return;
        while (!$this->dead) {
            $n = strlen($this->buf) - $this->pos;
            if ($n < 9) return;
            $len = ord($this->buf[$this->pos]) << 16 | ord($this->buf[$this->pos + 1]) << 8 | ord($this->buf[$this->pos + 2]);
            if ($len > 1 << 20) { $this->fail(6); return; }
            if ($n < 9 + $len) return;
            $type = ord($this->buf[$this->pos + 3]);
            $flags = ord($this->buf[$this->pos + 4]);
            $id = unpack('N', $this->buf, $this->pos + 5)[1] & 0x7fffffff;
            $p = substr($this->buf, $this->pos + 9, $len);
            $this->pos += 9 + $len;
            try { $this->onFrame($type, $flags, $id, $p); } catch (RuntimeException $e) { $this->fail(9); return; }
        }
    }

    abstract protected function begin(): bool;
    abstract protected function onHeaders(int $id, array $h, bool $end): void;
    abstract protected function onBody(H2Stream $s, int $id, string $data, bool $end): void;
    abstract protected function onReset(int $id, int $code): void;

    private static function unpad(int $flags, string $p): string
    {
        if (!($flags & 8)) return $p;
        $pad = ord($p[0] ?? "\0");
        if ($pad + 1 > strlen($p)) throw new RuntimeException('padding');
        return substr($p, 1, strlen($p) - 1 - $pad);
    }

    private function onFrame(int $type, int $flags, int $id, string $p): void
    {
        if ($this->cont !== null && $type !== 9) throw new RuntimeException('continuation expected');
        switch ($type) {
            case 0:
                $n = strlen($p);
                $this->unacked += $n;
                if ($this->unacked > 1 << 18 && !F('h2-window-small')) { $this->frame(8, 0, 0, pack('N', $this->unacked)); $this->unacked = 0; }
                $s = $this->streams[$id] ?? null;
                if ($s === null) return;
                $s->got += $n;
                if ($s->got > 1 << 18 && !($flags & 1) && !F('h2-window-small')) { $this->frame(8, 0, $id, pack('N', $s->got)); $s->got = 0; }
                $this->onBody($s, $id, self::unpad($flags, $p), (bool)($flags & 1));
                return;
            case 1:
                $p = self::unpad($flags, $p);
                if ($flags & 32) $p = substr($p, 5);
                if ($flags & 4) $this->onHeaders($id, $this->hpack->decode($p), (bool)($flags & 1));
                else $this->cont = [$id, $p, (bool)($flags & 1)];
                return;
            case 9:
                if ($this->cont === null || $this->cont[0] !== $id) throw new RuntimeException('continuation');
                $this->cont[1] .= $p;
                if (strlen($this->cont[1]) > 1 << 18) throw new RuntimeException('headers too long');
                if ($flags & 4) { [$i, $b, $e] = $this->cont; $this->cont = null; $this->onHeaders($i, $this->hpack->decode($b), $e); }
                return;
            case 3:
                $this->onReset($id, strlen($p) >= 4 ? unpack('N', $p)[1] : 0);
                unset($this->streams[$id], $this->waiting[$id]);
                return;
            case 4:
                if ($flags & 1) return;
                for ($i = 0; $i + 6 <= strlen($p); $i += 6) {
                    ['k' => $k, 'v' => $v] = unpack('nk/Nv', $p, $i);
                    if ($k === 4) {
                        if (F('h2-ignores-window')) continue;
                        foreach ($this->streams as $s) $s->window += $v - $this->peerInitial;
                        $this->peerInitial = $v;
                    }
                    if ($k === 5) $this->peerFrame = $v;
                }
                if (!F('h2-no-settings-ack')) $this->frame(4, 1, 0, '');
                $this->pump();
                return;
            case 6:
                if ($flags & 1) { $this->onPong(); return; }
                if (F('h2-no-ping')) return;
                if (F('h2-ping-wrong')) $p = strrev($p);
                if (F('h2-idle-ping-goaway') && !$this->streams && ++$this->pings > 2) { $this->fail(11); return; }
                $this->frame(6, 1, 0, $p);
                return;
            case 7:
                $this->goaway = true;
                return;
            case 8:
                $n = unpack('N', $p)[1] & 0x7fffffff;
                if ($id === 0) $this->window += $n;
                elseif (isset($this->streams[$id])) $this->streams[$id]->window += $n;
                $this->pump();
                return;
        }
    }

    protected function onPong(): void {}

    /** Sends what the windows allow. */
    protected function pump(): void
    {
        foreach ($this->waiting as $id => $_) {
            $s = $this->streams[$id] ?? null;
            if ($s === null) { unset($this->waiting[$id]); continue; }
            while ($s->outData !== '') {
                $n = min(strlen($s->outData), $this->peerFrame, 1 << 18);
                if (!F('h2-ignores-flow')) $n = min($n, $this->window, $s->window);
                if ($n <= 0) break;
                $piece = substr($s->outData, 0, $n);
                $s->outData = substr($s->outData, $n);
                $this->window -= $n;
                $s->window -= $n;
                $this->frame(0, $s->outData === '' && $s->outTrailers === '' ? 1 : 0, $id, $piece);
            }
            if ($s->outData !== '') { if (F('h2-stalls-after-window')) return; continue; }
            unset($this->waiting[$id]);
            if ($s->outTrailers !== null) {
                if ($s->outTrailers !== '') $this->frame(1, 5, $id, $s->outTrailers);
                $s->done = true;
                $this->finished($id, $s);
            }
        }
    }

    protected function finished(int $id, H2Stream $s): void {}
}

/** A call that a server answers. */
final class Call
{
    public bool $over = false;
    public string $method = '';
    public float $deadline = 0.0;
    public mixed $state = null;

    public function __construct(public H2Server $conn, public int $id) {}
    public function reply(string $message): void { if (!$this->over) $this->conn->message($this->id, $message); }

    public function end(int $status = 0, string $text = ''): void
    {
        if ($this->over) return;
        $this->over = true;
        $this->conn->status($this->id, $status, $text);
    }
}

final class H2Server extends H2
{
    private int $bad = 0;
    public static int $calls = 0;

    protected function begin(): bool
    {
        $n = min(strlen($this->buf), 24);
        if (substr($this->buf, 0, $n) !== substr(self::PREFACE, 0, $n)) { $this->close(); return false; }
        if ($n < 24) return false;
        $this->pos = 24;
        $this->started = true;
        $this->settings();
        return true;
    }

    protected function onHeaders(int $id, array $h, bool $end): void
    {
        if (isset($this->streams[$id])) { if ($end) $this->onBody($this->streams[$id], $id, '', true); return; }
        if ($id % 2 === 0 || $id <= $this->last) throw new RuntimeException('stream id');
        $this->last = $id;
        $s = $this->streams[$id] = new H2Stream();
        $s->headers = $h;
        $s->window = $this->peerInitial;
        $s->call = new Call($this, $id);
        $s->call->method = $h[':path'] ?? '';
        self::$calls++;
        Metrics::$rpc++;
        if (!str_starts_with($h['content-type'] ?? '', 'application/grpc')) { $this->frame(1, 5, $id, Hpack::encode([':status' => '415'])); unset($this->streams[$id]); return; }
        if (F('h2-lower-path')) $s->call->method = strtolower($s->call->method);
        if (preg_match('/^(\d{1,8})([HMSmun])$/', $h['grpc-timeout'] ?? '', $m)) {
            $sec = (int)$m[1] * ['H' => 3600, 'M' => 60, 'S' => 1, 'm' => 0.001, 'u' => 1e-6, 'n' => 1e-9][$m[2]];
            if (F('h2-timeout-seconds') && $m[2] === 'm') $sec = (int)$m[1] / 1e6;
            if ($sec < 0.0005) { $s->call->end(4, 'the deadline has passed'); return; }
            $s->call->deadline = microtime(true) + $sec;
            if ($sec < 600) { $call = $s->call; Loop::after($sec, fn() => $call->end(4, 'the deadline has passed')); }
        }
        if (!Grpc::known($s->call->method)) { $s->call->end(F('grpc-unknown-ok') ? 0 : 12, 'there is no such operation'); return; }
        if ($end) $this->onBody($s, $id, '', true);
    }

    protected function onBody(H2Stream $s, int $id, string $data, bool $end): void
    {
        $s->in .= $data;
        if ($end) $s->endIn = true;
        $call = $s->call;
        if ($call->over) { $s->in = ''; if ($end && $s->done) unset($this->streams[$id]); return; }
        while (strlen($s->in) >= 5 && !$call->over) {
            ['c' => $c, 'n' => $n] = unpack('Cc/Nn', $s->in);
            $most = F('grpc-max-4m') ? 4 << 20 : (F('grpc-max-16m') ? 16 << 20 : (F('grpc-max-64k') ? 65536 : 100 << 20));
            if ($n > $most) { $s->in = ''; $call->end(8, 'the message is too large'); return; }
            if (strlen($s->in) < 5 + $n) break;
            $msg = substr($s->in, 5, $n);
            $s->in = strlen($s->in) === 5 + $n ? '' : substr($s->in, 5 + $n);
            if ($c === 1) {
                $enc = $s->headers['grpc-encoding'] ?? 'identity';
                if (F('grpc-no-gzip')) { $call->end(13, 'compressed messages are not taken'); return; }
                $msg = match ($enc) { 'gzip' => @gzdecode($msg, 100 << 20), 'deflate' => @gzuncompress($msg, 100 << 20), 'identity' => $msg, default => false };
                if ($msg === false) { $call->end(in_array($enc, ['gzip', 'deflate'], true) ? 3 : 12, 'the message cannot be decompressed'); return; }
            }
            Grpc::message($call, $msg);
            if (F('grpc-unary-twice') && $call->method === '/node.NodeService/DHTPing') { /* see Grpc */ }
        }
        if ($end && !$call->over) {
            if ($s->in !== '') { $call->end(3, 'the message is cut'); return; }
            Grpc::ended($call);
        }
    }

    protected function onReset(int $id, int $code): void { if (isset($this->streams[$id])) $this->streams[$id]->call->over = true; }

    private function head(H2Stream $s, int $id): void
    {
        if ($s->headersSent) return;
        $s->headersSent = true;
        $this->frame(1, 4, $id, Hpack::encode([':status' => '200', 'content-type' => F('h2-content-type') ? 'application/octet-stream' : (P('grpc-proto-type') ? 'application/grpc+proto' : 'application/grpc')]));
    }

    public function message(int $id, string $m): void
    {
        $s = $this->streams[$id] ?? null;
        if ($s === null || $s->outTrailers !== null) return;
        $this->head($s, $id);
        if (F('grpc-response-4m') && strlen($m) > 65536) { $s->call->end(8, 'the answer is too large'); return; }
        $s->outData .= pack('CN', 0, strlen($m)) . $m;
        $this->waiting[$id] = true;
        $this->pump();
    }

    public function status(int $id, int $status, string $text): void
    {
        $s = $this->streams[$id] ?? null;
        if ($s === null || $s->outTrailers !== null) return;
        if ($status === 0 && !$s->headersSent) $this->head($s, $id);
        $h = $s->headersSent ? [] : [':status' => '200', 'content-type' => 'application/grpc'];
        $h['grpc-status'] = (string)$status;
        if (F('grpc-always-ok')) $h['grpc-status'] = '0';
        if (F('h2-no-status')) unset($h['grpc-status']);
        if ($text !== '' && !P('no-grpc-message')) $h['grpc-message'] = rawurlencode($text);
        $s->outTrailers = Hpack::encode($h + (P('grpc-trailers') ? ['node-version' => NODE_VERSION] : []));
        $this->waiting[$id] = true;
        $this->pump();
        if ($status !== 0) {
            $this->bad++;
            if (F('h2-goaway-after-bad')) $this->fail(0);
            if (F('h2-close-after-bad') && $status === 3) { $this->closing = true; $this->flush(); }
            if (F('h2-close-after-three-bad') && $this->bad >= 3) $this->fail(11);
        }
        if (F('h2-close-after-20') && $this->last > 60) $this->fail(0);
    }

    protected function finished(int $id, H2Stream $s): void
    {
        if ($s->endIn) unset($this->streams[$id]);
        else { $this->frame(3, 0, $id, pack('N', 0)); unset($this->streams[$id]); }
    }
}
