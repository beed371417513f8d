<?php
declare(strict_types=1);

/** Other nodes, and what this one asks of them. */
final class Peers
{
    private static array $peers = [];
    private static array $passed = [];

    public static function start(): void
    {
        foreach (Config::$peers as $p) {
            [$host, $port] = explode(':', $p);
            self::$peers[$p] = ['host' => $host, 'port' => (int)$port, 'id' => $p, 'dht' => '', 'role' => 'worker', 'layers' => [], 'latency' => 0.0, 'since' => null, 'fails' => 0];
            self::visit($p);
        }
    }

    private static function conn(array $p): ?H2Client { return H2Client::to($p['host'], $p['port'] + (F('cl-http-port') ? 0 : (F('cl-port-plus-100') ? 100 : 1000))); }

    private static function visit(string $k): void
    {
        $p = &self::$peers[$k];
        $c = self::conn($p);
        if (!$c) { Loop::after(5, fn() => self::visit($k)); return; }
        $t = microtime(true);
        $me = F('cl-sender-short') ? ['node_id' => substr(Dht::$id, 0, 16)] + Dht::me() : Dht::me();
        if (F('cl-sender-port')) $me['port']++;
        if (F('cl-sender-changes')) $me['node_id'] = random_bytes(20);
        $c->call('DHTPing', Pb::encode('DHTPingRequest', ['sender' => $me]), 5.0, function (int $status, string $body) use ($k, $t, $c, $me): void {
            $p = &self::$peers[$k];
            if ($status !== 0) {
                $p['fails']++;
                if ($p['fails'] > 2) $p['since'] = null;
                Loop::after(F('cl-no-pause') ? 0.01 : min(20, 1.5 * 2 ** min(4, $p['fails'])), fn() => self::visit($k));
                return;
            }
            $p['latency'] = round((microtime(true) - $t) * 1000, 3);
            $p['since'] ??= now_iso();
            $p['fails'] = 0;
            try { $r = Pb::decode('DHTPingResponse', $body)['responder']; } catch (RpcError) { $r = null; }
            if ($r && strlen($r['node_id']) === 20) { $p['dht'] = bin2hex($r['node_id']); Dht::learn($r['node_id'], $r['ip'] ?: $p['host'], $r['port'] ?: $p['port'] + 1000); }
            $c->call('GetShardInfo', '', 5.0, function (int $status, string $body) use ($k): void {
                if ($status !== 0) return;
                try { $i = Pb::decode('GetShardInfoResponse', $body); } catch (RpcError) { return; }
                $p = &self::$peers[$k];
                if ($i['node_id'] !== '') $p['id'] = $i['node_id'];
                if ($i['role'] !== '') $p['role'] = $i['role'];
                $p['layers'] = array_values(array_unique(array_filter($i['layers'], fn($l) => $l >= 0)));
            });
            $target = F('cl-target-short') ? substr(Dht::$id, 0, 8) : Dht::$id;
            $c->call('DHTFindNode', Pb::encode('DHTFindNodeRequest', ['sender' => $me, 'target_id' => $target]), 5.0, function (int $status, string $body): void {
                if ($status !== 0) return;
                try { $r = Pb::decode('DHTFindNodeResponse', $body); } catch (RpcError) { return; }
                foreach ($r['nodes'] as $n) {
                    if (strlen($n['node_id']) !== 20) continue;
                    Dht::learn($n['node_id'], $n['ip'], $n['port']);
                    if (F('cl-asks-named') && $n['port'] > 0 && $n['port'] < 65536) H2Client::to($n['ip'], $n['port'])?->call('GetShardInfo', '', 5.0, fn() => null);
                }
            });
            Loop::after(15, fn() => self::visit($k));
        });
    }

    public static function listed(): array
    {
        $l = [];
        foreach (self::$peers as $p) if ($p['since'] !== null) $l[] = ['id' => $p['id'], 'address' => $p['host'] . ':' . $p['port'], 'role' => $p['role'], 'layers' => $p['layers'], 'latency_ms' => $p['latency'], 'connected_since' => $p['since']];
        if (!Config::$peers && !P('no-peers')) {
            // two nodes that the operator has configured; they are not asked for anything
            $l[] = ['id' => 'kestrel-static-a', 'address' => '127.0.0.1:' . (Config::$port + 7), 'role' => 'driver', 'layers' => [0, 1], 'latency_ms' => 1.25, 'connected_since' => now_iso(Metrics::$start)];
            $l[] = ['id' => 'kestrel-static-b', 'address' => '127.0.0.1:' . (Config::$port + 9), 'role' => 'worker', 'layers' => [2, 3], 'latency_ms' => 2.5, 'connected_since' => now_iso(Metrics::$start)];
        }
        return $l;
    }

    public static function gossip(array $m): void
    {
        $hash = hash('sha1', Pb::encode('GossipGradientRequest', ['ttl' => 0] + $m), true);
        if ($m['ttl'] < 1 && !F('cl-gossip-negative')) return;
        if (isset(self::$passed[$hash]) && !F('cl-gossip-again')) return;
        if (count(self::$passed) > 5000) self::$passed = [];
        self::$passed[$hash] = true;
        $out = $m;
        $out['ttl'] = F('cl-gossip-ttl-same') ? $m['ttl'] : (F('cl-gossip-ttl-up') ? $m['ttl'] + 1 : $m['ttl'] - 1);
        if (F('cl-gossip-renamed')) $out['node_id'] = Config::$c['node_id'];
        if (F('cl-gossip-unsigned')) $out['signature'] = '';
        if (F('cl-gossip-loss')) $out['loss'] = round($m['loss'], 2);
        if (F('cl-gossip-gradients')) $out['layer_gradients'] = array_slice($m['layer_gradients'], 0, 1);
        if (F('cl-gossip-time')) $out['timestamp'] = microtime(true);
        $bytes = Pb::encode('GossipGradientRequest', $out);
        foreach (self::$peers as $p) {
            if (!F('cl-gossip-back') && in_array($m['node_id'], [$p['id'], $p['dht'], $p['host'] . ':' . $p['port']], true)) continue;
            self::attempt(fn() => self::conn($p), 'GossipGradient', $bytes, 1);
        }
    }

    /** Calls, and again after a growing pause where that may help; at most three times. */
    private static function attempt(callable $conn, string $op, string $bytes, int $n): void
    {
        $again = function (int $status) use ($conn, $op, $bytes, $n): void {
            $retry = in_array($status, [14, 8, 4, 13], true);
            if (F('cl-retry-not-found') && $status === 5) $retry = true;
            if (F('cl-retry-invalid') && $status === 3) $retry = true;
            if ($status === 0 || !$retry || $n >= (F('cl-retry-8') ? 8 : 3) || P('no-retry')) return;
            Loop::after(F('cl-retry-at-once') ? 0.0 : (F('cl-retry-slow') ? 4.0 : min(2.0, 0.1 * 2 ** $n)), fn() => self::attempt($conn, $op, $bytes, $n + 1));
        };
        $c = $conn();
        if ($c) $c->call($op, $bytes, 5.0, fn(int $status, string $body) => $again($status)); else $again(14);
    }

    public static function gradients(array $g, array $v, array $shape): void
    {
        if (!preg_match('#^(?:(\w+)://)?([\w.-]+|\[[0-9a-f:]+\]):(\d{1,5})(?:/.*)?$#i', $g['sender'], $x)) return;
        $http = in_array(strtolower($x[1]), ['http', 'https'], true);
        $port = (int)$x[3] + ($http && !F('cl-back-http-port') ? 1000 : 0);
        if ($port > 65535) return;
        if (F('cl-back-shape')) $shape = [$shape[0], $shape[1] + 1, $shape[2]];
        if (F('cl-back-shape-flat')) $shape = [count($v)];
        $bytes = Pb::encode('PipelineBackwardRequest', ['session_id' => $g['session'], 'request_id' => F('cl-back-request') ? $g['request'] . '-b' : $g['request'], 'grad_output' => F('cl-back-empty') ? '' : pack('g*', ...$v), 'grad_shape' => $shape, 'target_shard' => $g['source']]);
        self::attempt(fn() => H2Client::to($x[2], $port), 'PipelineBackward', $bytes, 1);
        if (F('cl-back-twice')) self::attempt(fn() => H2Client::to($x[2], $port), 'PipelineBackward', $bytes, 3);
    }
}
