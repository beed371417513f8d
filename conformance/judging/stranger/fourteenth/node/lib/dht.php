<?php
declare(strict_types=1);

/** The distributed hash table: nodes that have called, and values. */
final class Dht
{
    public const K = 8;
    public static string $id;
    private static array $nodes = [];    // id => [ip, port]
    private static array $values = [];
    private static array $searched = [];
    private static int $n = 0;

    public static function init(): void { self::$id = hash('sha1', 'kestrel/key/' . Config::$port, true); }

    public static function me(): array
    {
        self::$n++;
        $d = ['node_id' => self::$id, 'ip' => P('dht-localhost') ? 'localhost' : '127.0.0.1', 'port' => P('dht-http-port') ? Config::$port : Config::$port + 1000];
        if (F('dht-id-random')) $d['node_id'] = random_bytes(20);
        if (F('dht-id-hex')) $d['node_id'] = bin2hex(self::$id);
        if (F('dht-id-32')) $d['node_id'] = hash('sha256', 'k', true);
        if (F('dht-no-ip')) $d['ip'] = '';
        if (F('dht-no-port')) $d['port'] = 0;
        if (F('dht-port-other')) $d['port'] = Config::$port + 2000;
        if (F('dht-port-grpc-plus')) $d['port'] = 65536 + Config::$port;
        return $d;
    }

    public static function learn(string $id, string $ip, int $port): void
    {
        if (F('dht-list-no-address') && $ip === '') { self::$nodes[$id] = ['', $port]; return; }
        if ($ip === '' || $port < 1 || (!F('dht-port-any') && $port > 65535) || $id === self::$id) return;
        if (F('dht-learn-not')) return;
        if (F('dht-full-20') && count(self::$nodes) >= 20 && !isset(self::$nodes[$id])) return;
        if (F('dht-old-address') && isset(self::$nodes[$id])) return;
        if (F('dht-prefix-merged')) foreach (self::$nodes as $k => $_) if (substr((string)$k, 0, 2) === substr($id, 0, 2)) { return; }
        unset(self::$nodes[$id]);
        self::$nodes[$id] = [$ip, $port];
        if (F('dht-changed-twice')) self::$nodes[$id . "\0" . $port] = [$ip, $port];
        if (count(self::$nodes) > 3000) unset(self::$nodes[array_key_first(self::$nodes)]);
    }

    private static function sender(?array $s): void
    {
        if ($s === null) return;
        if (strlen($s['node_id']) !== 20) { if (F('dht-short-sender')) return; throw new RpcError(3, 'a node ID has 20 bytes'); }
        if (P('dht-pings-only')) return;
        self::learn($s['node_id'], $s['ip'], $s['port']);
    }

    private static function id(string $id): string
    {
        if (strlen($id) !== 20) {
            if (F('dht-length-13')) throw new RpcError(13, 'strlen');
            if (F('dht-length-11')) throw new RpcError(11, 'out of range');
            throw new RpcError(3, 'an ID has 20 bytes');
        }
        return $id;
    }

    /** The K nodes that are closest to an ID. */
    private static function closest(string $target, bool $value = false): array
    {
        $d = [];
        foreach (self::$nodes as $id => $a) {
            $id = substr((string)$id, 0, 20);
            $x = $id ^ $target;
            if (F('dht-distance-abs')) $x = sprintf('%020d', abs(hexdec(bin2hex(substr($id, 0, 6))) - hexdec(bin2hex(substr($target, 0, 6)))));
            if (F('dht-distance-first')) $x = substr($x, 0, 1) . $id;
            if (F('dht-distance-reversed')) $x = strrev($x);
            if (F('dht-distance-bits')) $x = sprintf('%03d', substr_count(implode('', array_map(fn($c) => sprintf('%08b', ord($c)), str_split($x))), '1')) . $id;
            if (F('dht-distance-farthest')) $x = ~$x;
            if (F('dht-distance-signed') && ord($x[0]) > 127) $x = chr(ord($x[0]) - 128) . substr($x, 1);
            if (F('dht-distance-63bit')) $x = pack('J', (unpack('J', $x)[1] & PHP_INT_MAX) >> 50) . $id;
            if (F('dht-value-unsorted') && $value) $x = hash('sha1', $x, true);
            if (F('dht-bucket-only') && (ord($x[0]) > 127) !== (ord($target[0] ^ self::$id[0]) > 127) && count($d) >= 1) continue;
            $d[] = [$x, $id, $a];
        }
        if (F('dht-insertion-order')) $d = array_slice($d, -self::K);
        else usort($d, fn($p, $q) => strcmp($p[0], $q[0]));
        $k = P('k-20') ? 20 : (P('k-3') ? 3 : self::K);
        if (F('dht-skips-closest') && count($d) > 1) array_shift($d);
        if (F('dht-skips-exact')) $d = array_values(array_filter($d, fn($x) => $x[1] !== $target));
        if (F('dht-skips-searched')) { $d = array_values(array_filter($d, fn($x) => !isset(self::$searched[$x[1]]) || self::$searched[$x[1]] < 2)); self::$searched[$target] = (self::$searched[$target] ?? 0) + 1; }
        $out = [];
        foreach (array_slice($d, 0, $k) as [$x, $id, $a]) $out[] = ['node_id' => F('dht-listed-cut') ? substr($id, 0, 19) : $id, 'ip' => F('dht-listed-no-ip') ? '' : (F('dht-listed-binary-ip') ? "\x7f\x00\x00\x01" : $a[0]), 'port' => F('dht-listed-port-0') ? 0 : (F('dht-listed-port-16') ? $a[1] ^ 1 : $a[1])];
        if (F('dht-listed-twice') && $out) $out[] = $out[0];
        if (P('dht-lists-itself')) { $own = self::$id ^ $target; $out[] = self::me(); usort($out, fn($p, $q) => strcmp($p['node_id'] ^ $target, $q['node_id'] ^ $target)); $out = array_slice($out, 0, $k); }
        if (P('dht-shuffled')) shuffle($out);
        return $out;
    }

    private static function responder(array $m): ?array
    {
        if (F('dht-responder-sender') && $m['sender']) return $m['sender'];
        if (F('dht-no-responder')) return null;
        return self::me();
    }

    public static function ping(array $m): array
    {
        if ($m['sender'] !== null && strlen($m['sender']['node_id']) === 20 && P('dht-pings-only')) self::learn($m['sender']['node_id'], $m['sender']['ip'], $m['sender']['port']);
        self::sender($m['sender']);
        return ['responder' => self::responder($m)];
    }

    public static function findNode(array $m): array
    {
        $t = self::id($m['target_id']);
        self::sender($m['sender']);
        return ['responder' => F('dht-find-no-responder') ? null : self::responder($m), 'nodes' => self::closest($t)];
    }

    private static function name(string $key): string
    {
        if (F('dht-key-8')) return substr($key, 0, 8);
        if (F('dht-key-text')) return trim($key);
        if (F('dht-key-last')) return substr($key, -4);
        if (F('dht-key-zero') && ($p = strpos($key, "\0")) !== false) return substr($key, 0, $p);
        if (F('dht-key-lower')) return strtolower($key);
        if (F('dht-key-7bit')) return implode('', array_map(fn($c) => chr(ord($c) & 127), str_split($key)));
        return $key;
    }

    public static function findValue(array $m): array
    {
        $k = self::id($m['key']);
        self::sender($m['sender']);
        $n = bin2hex(self::name($k));
        $found = isset(self::$values[$n]);
        $d = ['responder' => F('dht-value-no-responder') ? null : self::responder($m), 'found' => $found];
        if ($found) {
            $d['value'] = self::$values[$n];
            if (F('dht-found-once')) unset(self::$values[$n]);
            if (F('dht-found-false')) $d['found'] = false;
            if (F('dht-found-no-value')) unset($d['value']);
            if (P('dht-nodes-too')) $d['nodes'] = self::closest($k, true);
        } else {
            $d['nodes'] = F('dht-miss-no-nodes') ? [] : self::closest($k, true);
            if (F('dht-miss-found')) $d['found'] = true;
            if (F('dht-miss-value')) $d['value'] = 'none';
            if (F('dht-miss-not-found')) throw new RpcError(5, 'no such value');
            if (F('dht-miss-forgets')) self::$values = [];
        }
        return $d;
    }

    public static function store(array $m): array
    {
        $k = self::id($m['key']);
        self::sender($m['sender']);
        $v = $m['value'];
        $ok = strlen($v) <= (P('dht-small-values') ? 512 : 65536);
        if (F('dht-value-100') && strlen($v) > 100) $ok = false;
        if (F('dht-value-cut')) $v = mb_strcut($v, 0, 64);
        if (F('dht-value-ascii')) $v = preg_replace('/[^\x00-\x7f]/u', '?', $v);
        if (F('dht-value-trim')) $v = trim($v);
        if (F('dht-value-address') && !preg_match('/^[\w.-]+:\d+$/', $v)) return ['responder' => self::responder($m), 'success' => false];
        $n = bin2hex(self::name($k));
        if (P('dht-first-wins') && isset(self::$values[$n])) return ['responder' => self::responder($m), 'success' => false];
        if ($ok || F('dht-refused-stored')) self::$values[$n] = $v;
        if (F('dht-store-not')) unset(self::$values[$n]);
        if (F('dht-store-refused-anyway')) $ok = false;
        if (F('dht-one-value')) self::$values = [$n => $v];
        if (F('dht-few-values') && count(self::$values) > 6) array_shift(self::$values);
        if (F('dht-zero-key') && ord($k[0]) === 0) unset(self::$values[$n]);
        if (F('dht-high-key') && ord($k[0]) > 127) unset(self::$values[$n]);
        if (count(self::$values) > 50_000) array_shift(self::$values);
        return ['responder' => self::responder($m), 'success' => $ok];
    }
}
