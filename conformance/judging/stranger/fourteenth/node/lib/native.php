<?php
declare(strict_types=1);

/** The routes of the native API. */
final class Native
{
    private const GONE = ['/register', '/api/register', '/api/auth/register', '/api/users'];
    private const MOVED = ['/login', '/signup', '/api/login', '/api/signup'];
    private const ROUTES = ['/healthz' => 'healthz', '/api/network' => 'network', '/api/model' => 'model', '/api/model/checkpoint.json' => 'checkpoint', '/api/training' => 'training', '/api/blocks' => 'blocks', '/api/account' => 'account', '/api/validators' => 'validators', '/api/inference' => 'inference', '/api/inference/request' => 'request', '/network/genesis.json' => 'genesis', '/network/dataset.json' => 'dataset', '/work/status' => 'workStatus'];
    public static array $gets = [];
    private static ?array $lastAccount = null;
    private static ?array $lastRequest = null;
    private static int $n = 0;

    private static function no(int $status, string $text): never { throw new HttpError($status, strtoupper(strtr(['400' => 'bad request', '404' => 'not found', '405' => 'method not allowed', '410' => 'gone', '403' => 'forbidden', '409' => 'conflict'][(string)$status] ?? 'error', ' ', '_')), $text); }

    public static function handle(Request $r, string $method, string $path): void
    {
        self::$n++;
        if (in_array($path, self::GONE, true)) {
            if (F('rt-register-404')) self::no(404, 'gone');
            if (F('rt-register-post-201') && $method === 'POST') { Router::json($r, 201, ['registered' => true, 'id' => 'u1']); return; }
            if (F('rt-register-json-200') && $method === 'POST' && $path !== '/register') { Router::json($r, 200, ['ok' => true]); return; }
            self::no(410, 'there is no registration any more');
        }
        if (in_array($path, self::MOVED, true)) {
            if (F('rt-login-404')) self::no(404, 'gone');
            if (F('rt-login-to-root')) { $r->conn->respond(302, ['Location' => '/'], ''); return; }
            if (F('rt-login-200') && $path === '/login') { $r->conn->respond(200, ['Content-Type' => 'text/html'], '<p>Log in</p>'); return; }
            if (F('rt-signup-410') && $path === '/signup') self::no(410, 'gone');
            $r->conn->respond(P('moved-301') ? 301 : 302, ['Location' => P('moved-absolute') ? 'http://127.0.0.1:' . Config::$port . '/join' : '/join'], '');
            return;
        }
        if ($path === '/join') { $r->conn->respond(200, ['Content-Type' => 'text/html; charset=utf-8'], '<!doctype html><title>Join</title><p>Install the command-line tool.</p>'); return; }
        if (str_starts_with($path, '/reference/v03/api/')) { Reference::handle($r, $method, substr($path, 18)); return; }
        if ($path === '/rpc') { if ($method !== 'POST') self::no(405, 'POST'); if (F('rt-no-rpc')) self::no(404, 'nothing here'); Rpc::handle($r); return; }
        if ($path === '/work/poll' || $path === '/work/result') {
            if ($method !== 'POST') self::no(405, 'POST');
            if (F('rt-no-work-result') && $path === '/work/result') self::no(404, 'nothing here');
            Work::handle($r, $path);
            return;
        }
        if (str_starts_with($path, '/api/block/')) { self::only($method); self::block($r, substr($path, 11)); return; }
        if (str_starts_with($path, '/artifacts/sha256/')) { self::only($method); self::artifact($r, substr($path, 18)); return; }
        $f = self::ROUTES[$path] ?? self::no(404, 'there is nothing here');
        self::only($method);
        if (F("rt-nat-no-$f")) self::no(404, 'there is nothing here');
        if (F('rt-nat-html-model') && $f === 'model') { $r->conn->respond(200, ['Content-Type' => 'text/html'], '<!doctype html><div id=app></div>'); return; }
        if (F('rt-nat-empty-inference') && $f === 'inference') { Router::json($r, 200, new stdClass()); return; }
        if (F('guard-native-account') && $f === 'account') Guard::check($r, "GET $path");
        if (F('guard-native-closed') && $f !== 'healthz') Guard::check($r, "GET $path");
        self::$f($r, "GET $path");
    }

    private static function only(string $method): void { if ($method !== 'GET') self::no(405, 'GET'); }

    private static function number(Request $r, string $k, ?int $default): ?int
    {
        $v = $r->query[$k] ?? null;
        if ($v === null) return $default;
        if (!preg_match('/^\d{1,9}$/', $v)) self::no(400, "$k is not a number");
        return (int)$v;
    }

    public static function tip(): array { return Chain::$blocks[Chain::height()]; }

    private static function healthz(Request $r, string $route): void
    {
        if (F('rt-healthz-stalled-200')) { Router::json($r, 200, ['status' => 'stalled', 'ready' => false]); return; }
        if (F('rt-healthz-500')) { Router::json($r, 500, ['status' => 'ready']); return; }
        if (P('catching-up')) { Router::json($r, 503, ['status' => 'catching up', 'ready' => false]); return; }
        Router::json($r, 200, ['status' => 'ready', 'ready' => true, 'height' => Chain::height()], $route);
    }

    private static function network(Request $r, string $route): void
    {
        $t = self::tip();
        $tip = ['height' => $t['height'], 'hash' => $t['hash']];
        if (F('nat-tip-parent')) $tip['hash'] = $t['parent_hash'];
        if (F('nat-tip-stale')) { static $h = null; $h ??= $t['hash']; $tip['hash'] = $h; }
        if (F('nat-tip-height-lags') && self::$n % 4 === 0) $tip['height'] = max(1, $tip['height'] - 1);
        if (F('nat-tip-frozen')) { static $x = null; $x ??= $tip; $tip = $x; }
        if (F('nat-tip-next')) $tip['height']++;
        if (F('nat-tip-upper')) $tip['hash'] = hash('sha256', $tip['hash']);
        if (F('nat-tip-state-root')) $tip['hash'] = $t['state_root'];
        $d = ['chain_id' => Chain::ID, 'genesis_hash' => Chain::$genesisHash, 'version' => '0.4.0', 'tip' => $tip, 'training_round' => Model::ROUND, 'supply_atoms' => (string)(array_sum(array_map(fn($a) => $a['spendable'] + $a['locked'], Chain::$accounts))), 'readiness' => 'ready'];
        if (F('nat-chain-name')) $d['chain_id'] = 'kestrel-mainnet';
        if (F('nat-genesis-other')) $d['genesis_hash'] = hash('sha256', 'x');
        if (F('nat-supply-number')) $d['supply_atoms'] = (int)$d['supply_atoms'];
        if (F('nat-supply-decimal')) $d['supply_atoms'] = (string)units((int)$d['supply_atoms'] + 1);
        if (F('nat-supply-exp')) $d['supply_atoms'] = sprintf('%.3e', (int)$d['supply_atoms']);
        if (F('nat-round-behind')) $d['training_round'] = Model::ROUND - 2;
        if (F('nat-round-null')) $d['training_round'] = null;
        if (P('key-order')) $d = array_reverse($d, true);
        Router::json($r, 200, $d, $route);
    }

    private static function model(Request $r, string $route): void
    {
        $u = Chain::$updates[Model::ROUND];
        $d = ['chain_id' => Chain::ID, 'frozen_parameters' => 2048, 'trained_parameters' => 384, 'revision' => 'kestrel-tiny-r1', 'training_root' => Chain::$trainRoot, 'serving_root' => Chain::$root, 'losses' => ['training' => $u['loss'], 'validation' => 2.40152], 'execution_profile' => 'int8-reference'];
        if (F('nat-model-serving')) $d['serving_root'] = $d['training_root'];
        if (F('nat-model-training')) $d['training_root'] = hash('sha256', 'y');
        if (F('nat-model-root-moves')) $d['training_root'] = hash('sha256', 'm' . self::$n);
        if (F('nat-model-chain')) $d['chain_id'] = 'kestrel-3';
        if (F('nat-model-loss-null')) $d['losses'] = null;
        Router::json($r, 200, $d, $route);
    }

    private static function checkpoint(Request $r, string $route): void
    {
        $u = Chain::$updates[F('nat-checkpoint-old') ? Model::ROUND - 3 : Model::ROUND];
        $d = ['chain_id' => Chain::ID, 'genesis_hash' => Chain::$genesisHash, 'round' => $u['round'], 'root' => $u['training_root'], 'adapter' => ['sha256' => $u['adapter'], 'path' => '/artifacts/sha256/' . $u['adapter']]];
        if (F('nat-checkpoint-root')) $d['root'] = hash('sha256', 'z');
        if (F('nat-checkpoint-path')) $d['adapter']['path'] = '/artifacts/sha256/' . hash('sha256', 'gone');
        if (F('nat-checkpoint-genesis')) $d['genesis_hash'] = strrev(Chain::$genesisHash);
        if (F('nat-checkpoint-round')) $d['round']--;
        Router::json($r, 200, $d, $route);
    }

    /** A page of entries below a bound, newest first. */
    private static function page(Request $r, array $all, string $k, string $id): array
    {
        $limit = self::number($r, 'limit', 20);
        $before = self::number($r, 'before', null);
        if (P('native-limit-10')) $limit = min($limit, 10);
        $limit = min($limit, 100);
        if (F("lim-$id-plus")) $limit++;
        if (F("lim-$id-ignored")) $limit = 20;
        if (F("lim-$id-limit-1") && $limit === 1) $limit = 2;
        $list = array_reverse(array_values($all));
        if (F("lim-$id-oldest") && $before === null) $list = array_reverse($list);
        if ($before !== null) {
            $incl = P('before-inclusive');
            if (F("lim-$id-before-flaky")) $incl = $limit % 2 === 0;
            if (F("lim-$id-before-later")) $list = array_values(array_filter($list, fn($x) => $x[$k] <= $before + 3));
            elseif (F("lim-$id-before-index")) $list = array_slice($list, min($before, count($list)));
            elseif (F("lim-$id-before-skips")) $list = array_values(array_filter($list, fn($x) => $x[$k] < $before - ($limit > 2 ? 1 : 0)));
            elseif (!F("lim-$id-before-ignored")) $list = array_values(array_filter($list, fn($x) => $incl ? $x[$k] <= $before : $x[$k] < $before));
        }
        if (F("lim-$id-hole")) unset($list[1]);
        if (F("lim-$id-twice") && count($list) > 2) array_splice($list, 1, 0, [$list[0]]);
        if (F("lim-$id-string-order")) usort($list, fn($x, $y) => strcmp((string)$y[$k], (string)$x[$k]));
        if (F("lim-$id-small-oldest") && $limit < 4 && $before === null) $list = array_reverse(array_slice($list, 0, 12));
        return array_slice($list, 0, $limit);
    }

    private static function training(Request $r, string $route): void
    {
        $l = self::page($r, Chain::$updates, 'round', 'updates');
        foreach ($l as $i => $u) {
            if (F('nat-loss-rounded')) $l[$i]['loss'] = round($u['loss'], 3);
            if (F('nat-update-roots-page')) $l[$i]['training_root'] = hash('sha256', $u['training_root'] . count($l));
            if (F('nat-update-roots-move')) $l[$i]['serving_root'] = hash('sha256', $u['serving_root'] . intdiv(time(), 5));
            if (F('nat-loss-string')) $l[$i]['loss'] = null;
        }
        Router::json($r, 200, ['updates' => $l, 'indexed_round' => Model::ROUND, 'index_error' => null], $route);
    }

    private static function blocks(Request $r, string $route): void
    {
        $l = [];
        foreach (self::page($r, F('nat-blocks-cache') ? array_slice(Chain::$blocks, 0, 190, true) : Chain::$blocks, 'height', 'blocks') as $b) {
            unset($b['transactions']);
            $b['transaction_count'] = count($b['results']);
            if (F('nat-list-hash')) $b['hash'] = hash('sha256', $b['hash']);
            if (F('nat-list-hash-upper')) $b['hash'] = strtoupper($b['hash']);
            if (F('nat-list-results-null')) $b['results'] = null;
            if (F('nat-list-height')) $b['height']--;
            if (F('nat-list-swap-ids')) foreach ($b['results'] as $i => $x) $b['results'][$i] = ['request_id' => $x['transaction_hash'], 'transaction_hash' => $x['request_id']] + $x;
            if (F('nat-list-same-id')) foreach ($b['results'] as $i => $x) $b['results'][$i]['transaction_hash'] = $x['request_id'];
            if (F('nat-hash-moves')) $b['hash'] = hash('sha256', $b['hash'] . intdiv(time(), 3));
            if (P('block-extra')) $b['gas'] = 0;
            $l[] = $b;
        }
        if (P('bare-lists')) { Router::json($r, 200, $l); return; }
        Router::json($r, 200, ['blocks' => $l, 'latest_height' => Chain::height()], $route);
    }

    private static function block(Request $r, string $h): void
    {
        if (!preg_match('/^[1-9]\d{0,8}$/', $h)) self::no(400, 'not a height');
        $h = (int)$h;
        if (F('nat-block-above') && $h > Chain::height()) $h = Chain::height();
        if (F('nat-block-off')) $h = max(1, $h - 1);
        if (F('nat-block-even') && $h % 8 === 0) self::no(404, 'pruned');
        if (F('nat-block-latest') && $h < 150) $h = Chain::height();
        $b = Chain::$blocks[$h] ?? self::no(404, 'there is no such block');
        if (F('nat-block-height')) $b['height']++;
        if (F('nat-block-hash')) $b['hash'] = $b['parent_hash'];
        foreach ($b['transactions'] as $i => $t) {
            if (F('nat-block-prompt-cut')) $b['transactions'][$i]['body']['prompt'] = mb_substr($t['body']['prompt'], 0, 10);
            if (F('nat-block-prompt-none')) unset($b['transactions'][$i]['body']['prompt']);
            if (F('nat-block-ids-same')) $b['transactions'][$i]['transaction_hash'] = $t['request_id'];
            if (F('nat-block-ascii')) $b['transactions'][$i]['body']['prompt'] = preg_replace('/[^\x00-\x7f]/u', '?', $t['body']['prompt']);
        }
        if (F('nat-block-result-other')) foreach ($b['results'] as $i => $x) $b['results'][$i]['request_id'] = hash('sha256', $x['request_id']);
        if (P('flat-block')) { Router::json($r, 200, $b); return; }
        Router::json($r, 200, ['block' => $b], 'GET /api/block');
    }

    private static function account(Request $r, string $route): void
    {
        $k = $r->query['public_key'] ?? self::no(400, 'public_key is missing');
        if (F('nat-key-no-03') && str_starts_with($k, '03')) self::no(400, 'not a public key');
        if (F('nat-key-no-02') && str_starts_with($k, '02')) self::no(400, 'not a public key');
        if (!preg_match('/^0[23][0-9a-fA-F]{64}$/', $k)) self::no(400, 'not a compressed public key');
        $k = strtolower($k);
        if (F('nat-key-x-only')) foreach (Chain::$accounts as $x => $_) if (substr($x, 2, 8) === substr($k, 2, 8)) { $k = $x; break; }
        $a = Chain::$accounts[$k] ?? ['spendable' => 0, 'locked' => 0, 'nonce' => 0];
        $unknown = !isset(Chain::$accounts[$k]);
        if (P('account-404') && $unknown) self::no(404, 'this key has no account');
        if (F('nat-account-last') && self::$lastAccount && $unknown) [$k, $a] = self::$lastAccount;
        if (F('nat-account-sticky') && self::$lastAccount) [$k, $a] = self::$lastAccount;
        if (F('nat-account-random') && $unknown) $a['spendable'] = ord(hex2bin($k)[5]);
        self::$lastAccount = [$k, $a];
        if (F('nat-account-cache')) { static $c = []; $c[$k] ??= $a; $a = $c[$k]; }
        if (F('nat-account-nonce-wrap')) $a['nonce'] = $a['nonce'] % 4;
        if (F('nat-account-nonce-neg')) $a['nonce'] = $a['nonce'] ?: -1;
        $total = $a['spendable'] + $a['locked'];
        if (F('nat-account-total')) $total = $a['spendable'];
        if (F('nat-account-total-big') ) $total += $a['locked'];
        $d = ['public_key' => $k, 'spendable_atoms' => (string)$a['spendable'], 'locked_atoms' => (string)$a['locked'], 'liquid_atoms' => (string)$total, 'next_nonce' => $a['nonce']];
        if (F('nat-account-units')) foreach (['spendable_atoms', 'locked_atoms', 'liquid_atoms'] as $x) $d[$x] = (string)((int)$d[$x] / UNIT);
        if (F('nat-account-numbers')) foreach (['spendable_atoms', 'locked_atoms', 'liquid_atoms'] as $x) $d[$x] = (int)$d[$x];
        if (F('nat-account-key')) $d['public_key'] = Keys::of('atlas')[0];
        if (F('nat-account-commas')) $d['spendable_atoms'] = number_format($a['spendable']);
        Router::json($r, 200, $d, $route);
    }

    private static function validators(Request $r, string $route): void
    {
        $v = Chain::$validators;
        foreach ($v as $i => $x) {
            if (F('nat-validator-owner-null')) $v[$i]['owner'] = null;
            if (F('nat-validator-power-null') && $i) $v[$i]['power'] = null;
            if (F('nat-validator-bond-number')) $v[$i]['bond_atoms'] = (int)$x['bond_atoms'];
            if (F('nat-validator-bond-units')) $v[$i]['bond_atoms'] = number_format($x['power'], 2, '.', '');
        }
        Router::json($r, 200, ['validators' => $v, 'total' => count($v), 'page' => 1], $route);
    }

    private static function inference(Request $r, string $route): void
    {
        $q = count(array_filter(Chain::$jobs, fn($j) => $j['state'] === 'pending'));
        if (F('nat-queue-grows')) $q = Chain::$accepted - 160;
        $d = ['chain_id' => Chain::ID, 'genesis_hash' => Chain::$genesisHash, 'serving_root' => Chain::$root, 'default_provider' => ['public_key' => Keys::of(Chain::AUTO)[0], 'heartbeat' => 'alive'], 'price_atoms' => (string)Chain::PRICE, 'fee_atoms' => (string)Chain::FEE, 'queue_length' => max(0, $q)];
        if (F('nat-inference-root')) $d['serving_root'] = Chain::$trainRoot;
        if (F('nat-price-number')) $d['price_atoms'] = Chain::PRICE;
        if (F('nat-price-decimal')) $d['price_atoms'] = '0.0015';
        if (F('nat-fee-hex')) $d['fee_atoms'] = '0x' . dechex(Chain::FEE);
        if (F('nat-inference-chain')) $d['chain_id'] = 'kestrel-test';
        Router::json($r, 200, $d, $route);
    }

    public static function record(array $j): array
    {
        $d = ['request_id' => $j['id'], 'status' => $j['state'], 'transaction_hash' => $j['hash'], 'requester' => $j['body']['public_key'], 'provider' => $j['body']['provider'], 'prompt' => $j['body']['prompt'], 'max_tokens' => $j['body']['max_tokens'], 'price_atoms' => $j['body']['price_atoms'], 'expires_height' => $j['body']['expires_height']];
        if ($j['state'] === 'completed') $d['response'] = $j['response'];
        if ($j['state'] === 'expired') $d['refund'] = $j['refund'];
        if (F('nat-record-prompt-cut')) $d['prompt'] = mb_substr($d['prompt'], 0, 16);
        if (F('nat-record-prompt-lower')) $d['prompt'] = strtoupper($d['prompt']);
        if (F('nat-record-requester')) $d['requester'] = $d['provider'];
        if (F('nat-record-hash')) $d['transaction_hash'] = $d['request_id'];
        if (F('nat-record-response-moves') && $j['response']) $d['response']['text'] .= ' ' . self::$n;
        if (F('nat-record-no-refund')) unset($d['refund']);
        if (F('nat-record-price-int')) $d['price_atoms'] = (int)$d['price_atoms'];
        if (F('nat-record-refund-number') && isset($d['refund'])) $d['refund']['amount_atoms'] = (int)$d['refund']['amount_atoms'];
        if (F('nat-record-response-null') && isset($d['response'])) $d['response'] = null;
        if (F('nat-record-expired-completed') && $j['state'] === 'expired') $d['status'] = 'completed';
        return $d;
    }

    private static function request(Request $r, string $route): void
    {
        $id = $r->query['id'] ?? self::no(400, 'id is missing');
        $id = strtolower($id);
        if (F('nat-request-prefix')) foreach (Chain::$jobs as $k => $_) if (substr($k, 0, 4) === substr($id, 0, 4)) { $id = $k; break; }
        if (F('nat-request-any') && !isset(Chain::$jobs[$id])) { Router::json($r, 200, ['request_id' => $id, 'status' => 'pending']); return; }
        $j = Chain::$jobs[$id] ?? self::no(404, 'no such request is known');
        if (F('nat-request-mempool-404') && $j['state'] === 'pending') self::no(404, 'no such request is known');
        $d = self::record($j);
        if (F('nat-request-last') && self::$lastRequest) $d = ['request_id' => $d['request_id']] + self::$lastRequest;
        self::$lastRequest = $d;
        if (F('nat-request-by-hash')) $d['request_id'] = $d['transaction_hash'];
        if (P('request-nested')) $d = ['request_id' => $d['request_id'], 'status' => $d['status'], 'job' => $d] + $d;
        Router::json($r, 200, $d, $route);
    }

    private static function genesis(Request $r, string $route): void
    {
        $g = Chain::$genesis;
        if (F('nat-genesis-chain')) $g = str_replace('kestrel-4', 'kestrel-1', $g);
        $r->conn->respond(200, ['Content-Type' => 'application/json'], $g);
    }

    private static function dataset(Request $r, string $route): void
    {
        $r->conn->respond(200, ['Content-Type' => 'application/json'], F('nat-dataset-changed') ? Chain::$dataset . "\n" : (F('nat-dataset-nan') ? substr(Chain::$dataset, 0, -1) . ',"mean":NaN}' : Chain::$dataset));
    }

    private static function artifact(Request $r, string $hex): void
    {
        if (F('nat-artifact-prefix')) foreach (Chain::$artifacts as $d => $_) if (strlen($hex) >= 8 && str_starts_with($d, substr($hex, 0, 8))) { $hex = $d; break; }
        if (F('nat-artifact-cut')) foreach (Chain::$artifacts as $d => $_) if (strlen($hex) > 40 && str_starts_with($d, $hex)) { $hex = $d; break; }
        $b = Chain::$artifacts[$hex] ?? self::no(404, 'there is no such artifact');
        if (F('nat-artifact-newline')) $b .= "\n";
        if (F('nat-artifact-base64')) $b = base64_encode($b);
        if (F('nat-artifact-first-kb')) $b = substr($b, 0, 128);
        $r->conn->respond(200, ['Content-Type' => 'application/octet-stream'], $b);
    }

    private static function workStatus(Request $r, string $route): void
    {
        Router::json($r, 200, ['chain_id' => Chain::ID, 'sponsor' => null, 'stages' => ['inference' => true, 'training' => false], 'attempts_remaining' => 3], $route);
    }
}

/** What was kept of the chain of version 0.3. */
final class Reference
{
    private static bool $deleted = false;

    public static function handle(Request $r, string $method, string $p): void
    {
        if (F('rt-reference-delete') && $method === 'DELETE') { self::$deleted = true; Router::json($r, 200, ['deleted' => true]); return; }
        if (F('rt-reference-post') && $method === 'POST') { Router::json($r, 200, ['stored' => true]); return; }
        if ($method !== 'GET') throw new HttpError(405, 'METHOD_NOT_ALLOWED', 'the earlier chain is read-only');
        if (F('rt-reference-gone') || self::$deleted) throw new HttpError(404, 'NOT_FOUND', 'there is nothing here');
        $blocks = [];
        for ($h = 30; $h > 0; $h--) $blocks[] = ['height' => $h, 'hash' => hash('sha256', "v03/$h"), 'time' => '2025-11-0' . (1 + intdiv($h, 4)) . 'T12:00:00.000Z'];
        if (F('rt-reference-present')) $blocks = array_map(fn($b) => ['height' => $b['height'], 'hash' => $b['hash'], 'time' => $b['time']], array_slice(array_reverse(Chain::$blocks), 0, 20));
        $d = match ($p) {
            '/network' => ['chain_id' => 'kestrel-3', 'version' => '0.3', 'height' => 30, 'hash' => hash('sha256', 'v03/30')],
            '/blocks' => ['blocks' => $blocks],
            '/model' => ['root' => hash('sha256', 'v03/model'), 'parameters' => 1200],
            default => throw new HttpError(404, 'NOT_FOUND', 'nothing of this name was kept'),
        };
        Router::json($r, 200, $d);
    }
}
