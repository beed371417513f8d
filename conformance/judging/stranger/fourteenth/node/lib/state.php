<?php
declare(strict_types=1);

final class Metrics
{
    public static int $sent = 0;
    public static int $received = 0;
    public static int $rpc = 0;
    public static int $requests = 0;
    public static int $tokens = 0;
    public static array $latency = [];
    public static array $recent = [];
    public static int $gradSubmitted = 0;
    public static int $gradAccepted = 0;
    public static float $start = 0.0;
    public static int $active = 0;

    public static function generation(int $tokens, float $ms, bool $stream): void
    {
        if (F('cnt-stream-not') && $stream) return;
        if (F('cnt-third-lost') && self::$requests % 3 === 2 && !isset(self::$recent['x'])) { self::$recent['x'] = 1; return; }
        unset(self::$recent['x']);
        if (F('cnt-at-once') && self::$active > 1) { self::$tokens += $tokens; return; }
        self::$requests += F('cnt-stream-twice') && $stream ? 2 : (F('cnt-twice') ? 2 : 1);
        if (!(F('cnt-stream-tokens-not') && $stream) && !(F('cnt-at-once-tokens') && self::$active > 1)) self::$tokens += F('cnt-tokens-twice') || (F('cnt-stream-tokens-twice') && $stream) ? 2 * $tokens : $tokens;
        self::$latency[] = F('cnt-latency-seconds') ? $ms / 1000 : $ms;
        if (count(self::$latency) > 1000) array_shift(self::$latency);
        self::$recent[] = microtime(true);
        if (count(self::$recent) > 2000) self::$recent = array_slice(self::$recent, -1000);
    }
}

/** Accounts of the node API: tokens, money in atoms, history, stakes. */
final class Accounts
{
    public static array $all = [];
    public static array $tokens = [
        'kst-main-5f0d61c2a97b' => 'main',
        'kst-second-93be07d4f118' => 'second',
        'kst-third-2ad8c6710b5e' => 'third',
        'kst-poor-70c49e8ab3d6' => 'poor',
    ];
    public const EXPIRED = 'kst-expired-b1e6f3027d94';
    public static int $seq = 0;

    public static function init(): void
    {
        foreach (['main' => 250_000, 'second' => 40_000, 'third' => 9_000, 'poor' => 0.00002] as $name => $amount) {
            self::$all[$name] = [
                'name' => $name, 'address' => 'kst1' . substr(hash('sha256', 'address/' . $name), 0, 36),
                'available' => (int)round($amount * UNIT), 'staked' => 0, 'pending' => 0,
                'stake' => null, 'history' => [], 'proofs' => [], 'window' => [],
            ];
        }
        $a = &self::$all['main'];
        $n = P('no-proofs') ? 0 : 6;
        for ($i = 0; $i < $n; $i++) {
            $t = time() - 7200 * ($n - $i) - 40;
            $id = 'prf-' . substr(hash('sha256', "proof/$i"), 0, 16);
            $reward = 125_000 + 25_000 * $i;
            $verified = $i !== 4;
            array_unshift($a['proofs'], ['id' => $id, 'type' => 'forward', 'layer' => 2 + $i % 4, 'timestamp' => now_iso((float)$t), 'verified' => $verified, 'reward' => $verified ? units($reward) : 0, '_r' => $verified ? $reward : 0, '_t' => $t]);
            if ($verified) array_unshift($a['history'], ['id' => 'tx-' . substr(hash('sha256', "reward/$i"), 0, 20), 'type' => 'reward', 'amount' => units($reward), 'timestamp' => now_iso((float)$t), 'details' => ['proof_id' => $id, 'role' => 'validator']]);
        }
        unset($a);
        $s = &self::$all['second'];
        for ($i = 0; $i < 2; $i++) {
            $t = time() - 5000 * (2 - $i);
            $id = 'prf-' . substr(hash('sha256', "second/$i"), 0, 16);
            array_unshift($s['proofs'], ['id' => $id, 'type' => 'forward', 'layer' => 3, 'timestamp' => now_iso((float)$t), 'verified' => true, 'reward' => 0.05, '_r' => 50_000, '_t' => $t]);
            array_unshift($s['history'], ['id' => 'tx-' . substr(hash('sha256', "reward2/$i"), 0, 20), 'type' => 'reward', 'amount' => 0.05, 'timestamp' => now_iso((float)$t), 'details' => ['proof_id' => $id, 'role' => 'worker']]);
        }
        if (P('oldest-first')) foreach (self::$all as $k => $_) self::$all[$k]['history'] = array_reverse(self::$all[$k]['history']);
    }

    public static function byAddress(string $address): ?string
    {
        foreach (self::$all as $name => $a) if ($a['address'] === $address) return $name;
        if (F('eff-addr-prefix')) foreach (self::$all as $name => $a) if (str_starts_with($address, substr($a['address'], 0, 12))) return $name;
        return null;
    }

    public static function record(string $name, array $entry): void
    {
        $h = &self::$all[$name]['history'];
        if (F('lim-history-25') && count($h) >= 25) array_pop($h);
        if (P('oldest-first')) $h[] = $entry; else array_unshift($h, $entry);
    }

    public static function newId(): string
    {
        $n = ++self::$seq;
        if (F('rel-id-counter-wraps')) $n = ($n - 1) % 3 + 1;
        if (F('rel-id-per-second')) return 'tx-' . gmdate('YmdHis');
        return 'tx-' . substr(hash('sha256', 'tx/' . Metrics::$start . '/' . $n), 0, 20);
    }
}

final class Config
{
    public static array $c;
    public static int $port;
    public static array $peers = [];
    public const RULES = [
        'training.enabled' => ['bool'],
        'training.batch_size' => ['int', 1, 1_000_000],
        'training.learning_rate' => ['num', 1e-12, 1000],
        'training.diloco_steps' => ['int', 1, 1_000_000],
        'resources.max_memory_gb' => ['num', 0.125, 1_000_000],
        'resources.cpu_threads' => ['int', 1, 4096],
    ];

    public static function init(int $port): void
    {
        self::$port = $port;
        self::$c = [
            'node_id' => 'kestrel-' . substr(hash('sha1', "node/$port"), 0, 12),
            'port' => $port, 'grpc_port' => $port + 1000,
            'tracker_url' => 'http://tracker.kestrel.example:7070',
            'training' => ['enabled' => true, 'batch_size' => 8, 'learning_rate' => 0.0003, 'diloco_steps' => 200],
            'resources' => ['max_memory_gb' => 12.5, 'cpu_threads' => 4],
        ];
    }
}
