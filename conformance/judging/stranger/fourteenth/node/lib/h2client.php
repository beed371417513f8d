<?php
declare(strict_types=1);

/** A connection to the gRPC port of another node. */
final class H2Client extends H2
{
    private int $next = 1;
    private bool $up = false;
    private float $lastPing = 0.0;
    private bool $pingOut = false;
    /** @var H2Client[] */ private static array $pool = [];

    public static function to(string $host, int $port): ?self
    {
        $k = "$host:$port";
        $c = self::$pool[$k] ?? null;
        if ($c && !$c->dead && !$c->goaway && !$c->closing) return $c;
        $s = @stream_socket_client("tcp://$k", $e, $m, 2, STREAM_CLIENT_CONNECT | STREAM_CLIENT_ASYNC_CONNECT);
        if (!$s) return null;
        $c = self::$pool[$k] = new self($s);
        $c->out = self::PREFACE;
        $c->settings();
        $c->started = true;
        $c->lastPing = microtime(true);
        if (!F('cl-no-keepalive')) $c->keepalive();
        return $c;
    }

    private function keepalive(): void
    {
        Loop::after(F('cl-ping-storm') ? 2.0 : 30.0, function (): void {
            if ($this->dead) return;
            $this->pingOut = true;
            $this->frame(6, 0, 0, 'kestrel!');
            Loop::after(F('cl-ping-wait') ? 1.0 : 10.0, function (): void { if ($this->pingOut) $this->close(); });
            $this->keepalive();
        });
    }

    protected function onPong(): void { $this->pingOut = false; }
    protected function begin(): bool { return true; }

    public function call(string $method, string $message, float $timeout, callable $cb): void
    {
        $id = $this->next;
        $this->next += 2;
        $s = $this->streams[$id] = new H2Stream();
        $s->window = $this->peerInitial;
        $s->cb = $cb;
        $h = [':method' => 'POST', ':scheme' => 'http', ':path' => '/node.NodeService/' . $method, ':authority' => 'peer', 'te' => 'trailers', 'content-type' => 'application/grpc', 'user-agent' => 'kestrel/' . NODE_VERSION];
        if (!F('cl-no-deadline')) $h['grpc-timeout'] = (int)(F('cl-long-deadline') ? 90000 : (F('cl-short-deadline') ? 20 : $timeout * 1000)) . 'm';
        $this->frame(1, 4, $id, Hpack::encode($h));
        $s->outData = pack('CN', 0, strlen($message)) . $message;
        $s->outTrailers = '';
        $this->waiting[$id] = true;
        $this->pump();
        Loop::after($timeout + 0.2, function () use ($id): void {
            if (!isset($this->streams[$id])) return;
            $this->frame(3, 0, $id, pack('N', 8));
            $this->settle($id, 4, '');
        });
    }

    private function settle(int $id, int $status, string $body): void
    {
        $s = $this->streams[$id] ?? null;
        if ($s === null) return;
        unset($this->streams[$id], $this->waiting[$id]);
        ($s->cb)($status, strlen($body) >= 5 ? substr($body, 5) : '');
    }

    protected function onHeaders(int $id, array $h, bool $end): void
    {
        $s = $this->streams[$id] ?? null;
        if ($s === null) return;
        $s->headers += $h;
        if (isset($h['grpc-status'])) $s->headers['grpc-status'] = $h['grpc-status'];
        if ($end) $this->settle($id, (int)($s->headers['grpc-status'] ?? 2), $s->resp);
    }

    protected function onBody(H2Stream $s, int $id, string $data, bool $end): void
    {
        $s->resp .= $data;
        if ($end) $this->settle($id, 2, $s->resp);
    }

    protected function onReset(int $id, int $code): void { $this->settle($id, 14, ''); }

    public function onClose(): void
    {
        foreach (array_keys($this->streams) as $id) $this->settle($id, 14, '');
    }
}
