<?php
declare(strict_types=1);

/** One process, one stream_select: listeners, connections and timers. */
abstract class Conn
{
    public string $out = '';
    public bool $closing = false;   // close once everything is written
    public bool $dead = false;
    public float $lastSeen;

    public function __construct(public $sock)
    {
        stream_set_blocking($sock, false);
        stream_set_read_buffer($sock, 0);
        $this->lastSeen = microtime(true);
        Loop::$conns[(int)$sock] = $this;
    }

    abstract public function onData(string $data): void;
    public function onClose(): void {}
    public function onDrain(): void {}

    public function send(string $data): void
    {
        if ($this->dead) return;
        if ($this->out !== '') { $this->out .= $data; return; }
        $this->out = $data;
        $this->flush();
    }

    public function flush(): void
    {
        while ($this->out !== '') {
            $n = @fwrite($this->sock, strlen($this->out) > 1 << 20 ? substr($this->out, 0, 1 << 20) : $this->out);
            if ($n === false) { $this->close(); return; }
            if ($n === 0) {
                if (@feof($this->sock)) $this->close();
                return;
            }
            Metrics::$sent += $n;
            $this->out = substr($this->out, $n);
        }
        if ($this->closing) $this->close();
    }

    public function close(): void
    {
        if ($this->dead) return;
        $this->dead = true;
        unset(Loop::$conns[(int)$this->sock]);
        @fclose($this->sock);
        $this->onClose();
    }
}

final class Loop
{
    /** @var Conn[] */ public static array $conns = [];
    private static array $listeners = [];
    private static SplPriorityQueue $timers;
    private static int $seq = 0;
    public static int $inPort = 0;

    public static function listen(int $port, callable $make): void
    {
        self::$timers ??= new SplPriorityQueue();
        $ctx = stream_context_create(['socket' => ['backlog' => 512, 'so_reuseaddr' => true, 'tcp_nodelay' => true]]);
        $s = @stream_socket_server("tcp://127.0.0.1:$port", $e, $m, STREAM_SERVER_BIND | STREAM_SERVER_LISTEN, $ctx);
        if (!$s) { fwrite(STDERR, "cannot listen on $port: $m\n"); exit(1); }
        stream_set_blocking($s, false);
        self::$listeners[(int)$s] = [$s, $make];
    }

    public static function after(float $seconds, callable $f): void
    {
        self::$timers->insert($f, [-(microtime(true) + $seconds), -(++self::$seq)]);
        
    }

    private static function runTimers(): float
    {
        $q = self::$timers;
        $q->setExtractFlags(SplPriorityQueue::EXTR_BOTH);
        for ($n = 0; !$q->isEmpty() && $n < 500; $n++) {
            $wait = -$q->top()['priority'][0] - microtime(true);
            if ($wait > 0) return min($wait, 1.0);
            $f = $q->extract()['data'];
            try { $f(); } catch (Throwable $e) { fwrite(STDERR, 'timer: ' . $e->getMessage() . "\n"); }
        }
        return $q->isEmpty() ? 1.0 : 0.0;
    }

    /** Ends connections of HTTP that nobody has used for two minutes. */
    public static function sweep(): void
    {
        $old = microtime(true) - 120;
        foreach (self::$conns as $c) if ($c instanceof HttpConn && $c->lastSeen < $old && $c->out === '') $c->close();
        self::after(20, [self::class, 'sweep']);
    }

    public static function run(): never
    {
        self::sweep();
        while (true) {
            $wait = self::runTimers();
            $r = $w = [];
            foreach (self::$listeners as $id => [$s]) $r[$id] = $s;
            foreach (self::$conns as $id => $c) {
                $r[$id] = $c->sock;
                if ($c->out !== '') $w[$id] = $c->sock;
            }
            $x = null;
            $n = @stream_select($r, $w, $x, (int)$wait, (int)(($wait - (int)$wait) * 1e6));
            if (!$n) continue;
            foreach ($r as $id => $s) {
                if (isset(self::$listeners[$id])) {
                    for ($i = 0; $i < 64 && ($c = @stream_socket_accept($s, 0)); $i++) {
                        if (count(self::$conns) > 900) { @fclose($c); continue; }     // select() takes no more than 1024
                        (self::$listeners[$id][1])($c);
                    }
                    continue;
                }
                $c = self::$conns[(int)$s] ?? null;
                if (!$c) continue;
                $data = @fread($s, 1 << 18);
                if ($data === '' || $data === false) {
                    if (feof($s)) $c->close();
                    continue;
                }
                Metrics::$received += strlen($data);
                $c->lastSeen = microtime(true);
                try { $c->onData($data); } catch (Throwable $e) {
                    fwrite(STDERR, get_class($e) . ': ' . $e->getMessage() . ' ' . basename($e->getFile()) . ':' . $e->getLine() . "\n");
                    $c->close();
                }
            }
            foreach ($w as $s) {
                $c = self::$conns[(int)$s] ?? null;
                if ($c) { $c->flush(); if (!$c->dead && $c->out === '') $c->onDrain(); }
            }
        }
    }
}
