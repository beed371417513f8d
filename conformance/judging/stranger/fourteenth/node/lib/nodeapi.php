<?php
declare(strict_types=1);

final class NodeApi
{
    use InferenceRoutes;
    use WalletRoutes;

    public static bool $patched = false;
    private static array $queue = [];

    private static function body(Request $r): array
    {
        if (F('ref-empty-is-object') && trim($r->body) === '') return [];
        $b = json_decode(F('ref-utf8-fixed') ? mb_convert_encoding($r->body, 'UTF-8', 'UTF-8') : $r->body, false, 64);
        if (F('ref-not-json-form') && $b === null) { parse_str($r->body, $q); return $q; }
        if (F('ref-ct-charset') && str_contains($r->header('content-type') ?? '', ';')) throw new HttpError(415, 'UNSUPPORTED', 'only application/json');
        if (F('ref-escapes') && str_contains($r->body, '\\u')) throw new HttpError(400, 'INVALID_REQUEST', 'escapes are not taken');
        if (F('ref-spaces') && preg_match('/^\s/', $r->body)) throw new HttpError(400, 'INVALID_REQUEST', 'the body is not JSON');
        if (!$b instanceof stdClass) throw new HttpError(400, 'INVALID_REQUEST', 'the body is not a JSON object');
        return (array)$b;
    }

    private static function bad(string $text): never { throw new HttpError(400, 'INVALID_REQUEST', $text); }

    public static function status(Request $r, string $route): void
    {
        $c = Config::$c;
        $up = (int)floor(microtime(true) - Metrics::$start);
        if (F('rel-uptime-unix')) $up = time();
        if (F('rel-uptime-ms')) $up = (int)((microtime(true) - Metrics::$start) * 1000);
        if (F('rel-uptime-minutes')) $up = intdiv($up, 60);
        if (F('rel-uptime-last-error') && Router::$errored) $up = 0;
        $enabled = F('eff-enabled-stale') ? true : $c['training']['enabled'];
        $used = 1_812_000_000 + Router::$count % 97 * 4096;
        $d = [
            'node_id' => F('rel-node-id-config') ? substr($c['node_id'], 0, -1) : $c['node_id'],
            'version' => NODE_VERSION, 'uptime_seconds' => $up, 'status' => P('other-words') ? 'serving' : 'running',
            'role' => P('other-words') ? 'tail' : 'validator', 'layers' => P('layers-unsorted') ? [5, 2, 4, 3] : Model::HELD, 'peer_count' => count(Peers::listed()) + (F('rel-peer-count') ? 1 : 0),
            'training' => ['enabled' => $enabled, 'epoch' => 2, 'step' => 1400, 'loss' => 2.318407],
            'resources' => ['gpu_memory_used' => P('no-gpu') ? 0 : 2_147_483_648, 'gpu_memory_total' => P('no-gpu') ? 0 : 8_589_934_592, 'cpu_percent' => round(4 + fmod(microtime(true), 1) * 10, 1), 'ram_used' => $used],
        ];
        if (P('extra-fields')) { $d['motto'] = 'slow and steady'; $d['training']['phase'] = 'early'; $d['resources']['disks'] = [1, 2]; }
        if (P('key-order')) $d = array_reverse($d, true);
        Router::json($r, 200, $d, $route);
    }

    public static function metrics(Request $r, string $route): void
    {
        $l = Metrics::$latency;
        sort($l);
        $n = count($l);
        $now = microtime(true);
        $minute = count(array_filter(Metrics::$recent, fn($t) => is_float($t) && $t > $now - 60));
        $avg = $n ? round(array_sum($l) / $n, 3) : 0;
        $p99 = $n ? round(max($avg, $l[min($n - 1, (int)floor($n * 0.99))]), 3) : 0;
        if (F('rel-p99-is-p1') && $n) $p99 = round($l[0] / 2, 3);
        if (F('cnt-latency-micro')) { $avg *= 1000; $p99 *= 1000; }
        $total = 0;
        foreach (Accounts::$all['main']['proofs'] as $p) $total += $p['_r'];
        static $frozen = null;
        $frozen ??= now_micro();
        $d = [
            'timestamp' => F('rel-metrics-frozen') ? $frozen : now_micro(),
            'inference' => ['requests_total' => Metrics::$requests, 'requests_per_minute' => $minute, 'avg_latency_ms' => $avg, 'p99_latency_ms' => $p99, 'tokens_generated' => Metrics::$tokens],
            'training' => ['steps_total' => 1400, 'steps_per_hour' => 60, 'gradients_submitted' => 7 + Metrics::$gradSubmitted, 'gradients_accepted' => 7 + Metrics::$gradAccepted],
            'network' => ['bytes_sent' => Metrics::$sent, 'bytes_received' => Metrics::$received, 'active_connections' => count(Loop::$conns), 'rpc_calls' => Metrics::$rpc],
            'rewards' => ['earned_today' => 0, 'earned_total' => units($total), 'pending' => 0.025],
        ];
        if (F('rel-requests-drop') && Metrics::$requests > 12) $d['inference']['requests_total'] -= 12;
        if (F('rel-tokens-8bit')) $d['inference']['tokens_generated'] %= 256;
        if (F('rel-metrics-cache')) { static $m = null; if ($m === null || $now - $m[0] > 8) $m = [$now, $d]; $ts = $d['timestamp']; $d = $m[1]; $d['timestamp'] = $ts; }
        if (F('rel-metrics-cache-time')) { static $mt = ''; $mt = $mt ?: $d['timestamp']; $d['timestamp'] = $mt; }
        if (F('rel-metrics-back') && Router::$count % 2) $d['timestamp'] = now_micro($now - 3);
        Router::json($r, 200, $d, $route);
    }

    public static function health(Request $r, string $route): void
    {
        $ok = P('other-words') ? 'fine' : 'ok';
        Router::json($r, 200, ['healthy' => true, 'checks' => ['gpu' => P('no-gpu') ? 'absent' : $ok, 'network' => $ok, 'storage' => $ok, 'peers' => Peers::listed() ? $ok : (P('peers-warn') ? 'none' : $ok)]], $route);
    }

    public static function peers(Request $r, string $route): void
    {
        $l = Peers::listed();
        if (F('rel-peers-cache')) { static $c = null; $c ??= $l; $l = $c; }
        Router::json($r, 200, ['peers' => $l, 'total' => count($l) + (F('rel-peers-total') ? 1 : 0)], $route);
    }

    public static function layers(Request $r, string $route): void
    {
        $l = [];
        foreach (P('all-layers') ? range(0, Model::LAYERS - 1) : Model::HELD as $i) $l[] = ['index' => $i + (F('rel-layers-from-1') ? 1 : 0), 'type' => 'transformer', 'memory_mb' => 12 + $i, 'status' => in_array($i, Model::HELD, true) ? 'active' : 'remote'];
        if (F('rel-layers-lost') && count($l) > 1) array_pop($l);
        if (P('layers-unsorted')) $l = array_reverse($l);
        Router::json($r, 200, ['layers' => $l, 'total_layers' => F('rel-total-layers-held') ? count($l) : Model::LAYERS, 'my_layer_count' => count(Model::HELD)], $route);
    }

    public static function network(Request $r, string $route): void
    {
        $roles = array_count_values(array_column(Peers::listed(), 'role'));
        $d = [
            'nodes' => ['total' => 1 + count(Peers::listed()), 'drivers' => $roles['driver'] ?? 0, 'workers' => $roles['worker'] ?? 0, 'validators' => 1 + ($roles['validator'] ?? 0)],
            'architecture' => ['layers' => Model::LAYERS, 'hidden_dim' => Model::HIDDEN, 'parameters' => P('short-parameters') ? '2.4K' : '2432'],
            'capacity' => ['total_memory_gb' => 32, 'used_memory_gb' => 9.75],
            'training' => ['epoch' => 2, 'global_step' => 1400, 'loss' => 2.318407],
        ];
        Router::json($r, 200, $d, $route);
    }

    public static function config(Request $r, string $route): void
    {
        $c = Config::$c;
        if (F('rel-port-8000')) $c['port'] = 8000;
        if (F('rel-grpc-port')) $c['grpc_port'] = $c['port'] + 100;
        if (F('eff-config-cache')) { static $old = null, $t = 0; if ($old === null || microtime(true) - $t > 6) { $old = $c; $t = microtime(true); } $c = $old; }
        if (F('eff-config-every-other') && Router::$count % 2 && self::$patched) { Config::$c['training']['batch_size'] === 8 ?: $c['training']['batch_size'] = 8; }
        if (F('fld-lr-fixed')) $c['training']['learning_rate'] = round((float)$c['training']['learning_rate'], 6);
        if (F('eff-lr-float32')) $c['training']['learning_rate'] = unpack('g', pack('g', (float)$c['training']['learning_rate']))[1];
        Router::json($r, 200, $c, $route);
    }

    public static function patch(Request $r, string $route): void
    {
        $b = self::body($r);
        $flat = [];
        $walk = function (array $in, string $prefix) use (&$walk, &$flat): void {
            foreach ($in as $k => $v) {
                $path = $prefix . $k;
                if ($v instanceof stdClass && !isset(Config::RULES[$path])) {
                    if (!in_array($path, ['training', 'resources'], true)) self::bad("$path is not a part of the configuration");
                    $walk((array)$v, "$path.");
                } else $flat[$path] = $v;
            }
        };
        if (!F('ref-patch-dotted')) foreach ($b as $k => $v) if (str_contains((string)$k, '.')) self::bad('keys are nested, not dotted');
        $walk($b, '');
        if (F('eff-patch-first-key')) $flat = array_slice($flat, 0, 1);
        if (F('ref-patch-two-keys') && count($flat) < 2) self::bad('name two keys at least');
        if (F('ref-patch-one-key') && count($flat) > 1) self::bad('one key at a time');
        if (F('ref-patch-string-ok')) foreach ($flat as $k => $v) if (is_string($v) && is_numeric($v)) $flat[$k] = $v + 0;
        if (F('ref-patch-bool-int') && isset($flat['training.batch_size']) && is_bool($flat['training.batch_size'])) $flat['training.batch_size'] = (int)$flat['training.batch_size'];
        if (F('ref-patch-array-first')) foreach ($flat as $k => $v) if (is_array($v) && $v) $flat[$k] = $v[0];
        if (F('ref-patch-ignores')) foreach ($flat as $k => $v) if (is_array($v) || $v instanceof stdClass) unset($flat[$k]);
        $before = Config::$c;
        foreach ($flat as $path => $v) {
            $rule = Config::RULES[$path] ?? null;
            if ($rule === null) self::bad("$path cannot be changed");
            if (P('config-fixed-lr') && $path === 'training.learning_rate') self::bad("$path cannot be changed");
            $ok = match ($rule[0]) {
                'bool' => is_bool($v),
                'int' => is_int($v) || (is_float($v) && floor($v) === $v && abs($v) < 1e15),
                'num' => is_int($v) || is_float($v),
            };
            if ($path === 'training.enabled' && F('ref-enabled-int') && is_int($v)) { $v = (bool)$v; $ok = true; }
            if ($path === 'training.enabled' && F('ref-enabled-string') && is_string($v)) { $v = $v === 'true'; $ok = true; }
            if ($path === 'training.enabled' && F('ref-enabled-off') && $v === false) $ok = false;
            if ($rule[0] === 'int' && is_int($v) === false && $ok) $v = (int)$v;
            if ($ok && isset($rule[1]) && ($v < $rule[1] || $v > $rule[2])) $ok = false;
            if (F('ref-lr-small') && $path === 'training.learning_rate' && $v < 1e-6) $v = 1e-6;
            if (!$ok) {
                if (P('patch-success-false')) { Config::$c = $before; Router::json($r, 200, ['success' => false, 'updated' => [], 'restart_required' => false], $route); return; }
                if (!F('eff-patch-half-kept')) Config::$c = $before;
                if (F('eff-patch-refused-kept')) self::store($path, is_array($v) || is_object($v) ? 0 : $v);
                if (F('eff-patch-order')) foreach ($flat as $p2 => $v2) if ($p2 !== $path && isset(Config::RULES[$p2]) && is_int($v2)) self::store($p2, $v2);
                self::bad("$path: the value does not fit");
            }
            self::store($path, $v);
        }
        if (F('eff-patch-others')) Config::$c['training']['diloco_steps'] = 200;
        if (F('eff-patch-resets-lr') && !isset($flat['training.learning_rate'])) Config::$c['training']['learning_rate'] = 0.0003;
        if (F('eff-patch-not')) Config::$c = $before;
        if (F('eff-patch-merge-lost') && count($flat) > 1) { Config::$c = $before; foreach ($flat as $p => $v) {} self::store($p, $v); }
        if (F('eff-patch-forgets')) Loop::after(4, function () use ($before) { Config::$c = $before; });
        if (F('eff-patch-undone-by-refusal')) { self::$queue = [$before]; }
        if (F('eff-patch-batch-swapped') && isset($flat['resources.cpu_threads'])) Config::$c['training']['batch_size'] = $flat['resources.cpu_threads'];
        if (F('eff-patch-rounds')) Config::$c['resources']['max_memory_gb'] = (int)Config::$c['resources']['max_memory_gb'];
        if (F('eff-patch-16bit')) Config::$c['training']['diloco_steps'] &= 0xffff;
        if ($flat) self::$patched = true;
        $updated = array_keys($flat);
        if (F('fld-updated-last')) $updated = array_map(fn($p) => substr($p, strpos($p, '.') + 1), $updated);
        if (F('fld-updated-slash')) $updated = array_map(fn($p) => strtr($p, '.', '/'), $updated);
        if (F('rel-updated-all')) $updated = array_keys(Config::RULES);
        if (F('rel-updated-top')) $updated = array_values(array_unique(array_map(fn($p) => explode('.', $p)[0], $updated)));
        if (F('rel-updated-differs')) $updated = array_values(array_filter($updated, fn($p) => $before[explode('.', $p)[0]][explode('.', $p)[1]] !== Config::$c[explode('.', $p)[0]][explode('.', $p)[1]])) ?: ['training'];
        if (P('patch-reverse')) $updated = array_reverse($updated);
        Router::json($r, 200, ['success' => true, 'updated' => $updated, 'restart_required' => false], $route);
    }

    private static function store(string $path, mixed $v): void
    {
        [$a, $b] = explode('.', $path);
        Config::$c[$a][$b] = $v;
    }

    public static function trainingGlobal(Request $r, string $route): void
    {
        $d = [
            'global_avg_loss' => 2.318407, 'global_min_loss' => 2.201774,
            'hash_agreement_rate' => P('diverged') ? 0.75 : 1.0, 'total_nodes_training' => 4,
            'successful_syncs' => 27, 'failed_syncs' => 3, 'sync_success_rate' => 0.9,
            'global_steps' => 5600, 'global_tokens' => 1_433_600, 'data_shards_covered' => [0, 1, 2, 5],
            'is_converging' => !P('diverged'), 'training_verified' => !P('diverged'), 'loss_trend' => P('flat-trend') ? 'flat' : 'improving',
            'local' => ['node_id' => Config::$c['node_id'], 'training_rounds' => Model::ROUND, 'current_loss' => 2.318407, 'is_training' => Config::$c['training']['enabled']],
            'diloco' => ['enabled' => true, 'inner_step_count' => 50, 'inner_steps_total' => 200, 'progress' => 0.25, 'outer_step_count' => Model::ROUND],
        ];
        Router::json($r, 200, $d, $route);
    }

    public static function trainingVerify(Request $r, string $route): void
    {
        if (P('diverged')) $d = ['is_working' => false, 'reason' => 'a quarter of the nodes has another model', 'action' => 'fetch the latest checkpoint on those nodes'];
        else $d = ['is_working' => true, 'reason' => 'all models are equal and the loss falls', 'metrics' => ['loss_trend' => P('flat-trend') ? 'flat' : 'improving', 'hash_agreement' => P('percent-decimals') ? '100.0%' : '100%', 'global_loss' => 2.318407]];
        Router::json($r, 200, $d, $route);
    }
}
