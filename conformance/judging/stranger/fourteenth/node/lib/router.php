<?php
declare(strict_types=1);

final class Router
{
    public const NODE = [
        // path => [method => [handler, needs a token]]
        '/status' => ['GET' => ['status', false]],
        '/metrics' => ['GET' => ['metrics', false]],
        '/health' => ['GET' => ['health', false]],
        '/inference' => ['POST' => ['inference', true]],
        '/wallet/balance' => ['GET' => ['balance', true]],
        '/wallet/send' => ['POST' => ['send', true]],
        '/wallet/transactions' => ['GET' => ['transactions', true]],
        '/wallet/stake' => ['POST' => ['stake', true]],
        '/wallet/unstake' => ['POST' => ['unstake', true]],
        '/peers' => ['GET' => ['peers', true]],
        '/layers' => ['GET' => ['layers', true]],
        '/network' => ['GET' => ['network', false]],
        '/config' => ['GET' => ['config', true], 'PATCH' => ['patch', true]],
        '/proofs' => ['GET' => ['proofs', true]],
    ];
    public static ?string $lastRefused = null;
    public static int $count = 0;
    private static array $seen = [];
    public static bool $errored = false;

    public static function handle(Request $r): void
    {
        self::$count++;
        $route = null;
        try {
            $method = $r->method === 'HEAD' && !P('no-head') ? 'GET' : $r->method;
            if (F('lim-path-stuck') && self::$errored && $r->path === '/api/v1/network') throw new HttpError(503, 'BUSY', 'the node recovers');
            $path = $r->path;
            if (P('trailing-slash') && strlen($path) > 1) $path = rtrim($path, '/');
            if (str_starts_with($path, '/api/v1/')) {
                $p = substr($path, 7);
                if (self::fewer($p, $method)) throw new HttpError(404, 'NOT_FOUND', 'there is nothing here');
                if (F('rt-soft-404') && !isset(self::NODE[$p])) { self::json($r, 200, ['error' => ['code' => 'NOT_FOUND', 'message' => 'there is nothing here']]); return; }
                $methods = self::NODE[$p] ?? throw new HttpError(404, 'NOT_FOUND', 'there is nothing here');
                if (F('rt-patch-is-put') && $p === '/config') { if ($method === 'PATCH') $method = 'X'; if ($method === 'PUT') $method = 'PATCH'; }
                if (F('rt-send-put') && $p === '/wallet/send') $method = ['POST' => 'X', 'PUT' => 'POST'][$method] ?? $method;
                if (F('rt-unstake-delete') && $p === '/wallet/unstake') $method = ['POST' => 'X', 'DELETE' => 'POST'][$method] ?? $method;
                if (!isset($methods[$method])) throw new HttpError(405, 'METHOD_NOT_ALLOWED', "this path takes " . implode(', ', array_keys($methods)));
                [$handler, $auth] = $methods[$method];
                $route = "$method $p";
                if ($auth || (F('guard-status-closed') && $p === '/status') || (F('guard-network-closed') && $p === '/network')) Guard::check($r, $route);
                NodeApi::$handler($r, $route);
                return;
            }
            $route = $method . ' ' . $path;
            if ($method === 'GET' && $path === '/api/training/global' && !F('rt-global-v1')) { NodeApi::trainingGlobal($r, $route); return; }
            if ($method === 'GET' && $path === '/api/training/verify' && !F('rt-verify-gone')) { if (F('guard-verify-closed')) Guard::check($r, $route); NodeApi::trainingVerify($r, $route); return; }
            Native::handle($r, $method, $path);
        } catch (HttpError $e) {
            self::$errored = true;
            self::error($r, $e, $route);
        } catch (Throwable $e) {
            fwrite(STDERR, 'route: ' . $e->getMessage() . ' ' . basename($e->getFile()) . ':' . $e->getLine() . "\n");
            self::error($r, new HttpError(500, 'INTERNAL', 'the node failed'), $route);
        }
    }

    /** Routes that only a faulty node lacks. */
    private static function fewer(string $p, string $m): bool
    {
        if (FAULT === null || !str_starts_with(FAULT, 'rt-')) return false;
        return (F('rt-no-unstake') && $p === '/wallet/unstake') || (F('rt-no-proofs') && $p === '/proofs')
            || (F('rt-no-health') && $p === '/health') || (F('rt-no-layers') && $p === '/layers')
            || (F('rt-network-after') && $p === '/network' && self::$count > 40)
            || (F('rt-peers-after-error') && $p === '/peers' && self::$errored)
            || (F('rt-config-after-patch') && $p === '/config' && $m === 'GET' && NodeApi::$patched)
            || (F('rt-metrics-while-stream') && $p === '/metrics' && Metrics::$active > 0)
            || (F('rt-health-thrice') && $p === '/health' && (self::$seen[$p] = (self::$seen[$p] ?? 0) + 1) > 3);
    }

    public static function json(Request $r, int $status, mixed $data, ?string $route = null): void
    {
        if ($route !== null && $status < 300) {
            if (is_array($data)) $data = Shape::apply($route, $data, $r);
            if (F('rt-wrapped-balance') && $route === 'GET /wallet/balance') $data = ['data' => $data];
            if (F('rt-wrapped-config') && $route === 'GET /config') $data = ['config' => $data];
            if (F('rt-list-bare-peers') && $route === 'GET /peers') $data = $data['peers'];
            if (F('rt-list-bare-proofs') && $route === 'GET /proofs') $data = $data['proofs'];
            if (F('rt-wrapped-send') && $route === 'POST /wallet/send') $data = ['transaction' => $data];
            if (F('rt-400-send') && $route === 'POST /wallet/send') $status = 400;
            if (F('rt-status-redirect') && $route === 'GET /status') { $r->conn->respond(302, ['Location' => '/api/v1/health'], ''); return; }
            if (F('rt-204-patch') && $route === 'PATCH /config') { $r->conn->respond(204, [], ''); return; }
        }
        $body = jenc($data);
        if (F('fld-nan-loss') && $route === 'GET /status') $body = preg_replace('/"loss":[0-9.]+/', '"loss":NaN', $body);
        if (F('fld-inf-p99') && $route === 'GET /metrics') $body = preg_replace('/"p99_latency_ms":[0-9.e-]+/', '"p99_latency_ms":Infinity', $body);
        if (F('fld-dup-key') && $route === 'GET /network') $body = '{"nodes":{},' . substr($body, 1);
        if (F('fld-locale-comma') && $route === 'GET /wallet/balance') $body = preg_replace('/"available":(\d+)\.(\d+)/', '"available":$1,$2', $body);
        if (F('fld-bom') && $route === 'GET /layers') $body = "\xEF\xBB\xBF" . $body;
        if (F('fld-single-quote') && $route === 'GET /peers') $body = strtr($body, '"', "'");
        if (F('fld-trailing-comma') && $route === 'GET /config') $body = substr($body, 0, -1) . ',}';
        $type = 'application/json' . (P('charset') ? '; charset=utf-8' : '');
        if (F('fld-type-plain') && $route === 'GET /status') $type = 'text/plain';
        if (F('fld-type-html-error') && $status >= 400) $type = 'text/html';
        $send = fn() => $r->conn->respond($status, ['Content-Type' => $type], $body);
        if (P('slow')) Loop::after(0.03, $send); else $send();
    }

    public static function error(Request $r, HttpError $e, ?string $route): void
    {
        $status = $e->status;
        $err = ['code' => $e->errCode, 'message' => $e->getMessage()];
        if ($e->details !== null) $err['details'] = $e->details;
        if ($status === 405) { /* fine */ }
        if (P('404-for-405') && $status === 405) { $status = 404; $err['code'] = 'NO_SUCH_ROUTE'; }
        if (P('422') && $status === 400) { $status = 422; $err['code'] = 'UNPROCESSABLE'; }
        if (P('error-details') && $status === 400) $err['details'] = ['field' => 'body', 'hint' => 'see the manual'];
        $err = RefusalFaults::apply($status, $err, $route);
        $body = ['error' => $err];
        if (P('error-extra')) $body['request'] = bin2hex(random_bytes(6));
        if (F('ref-error-flat')) $body = $err;
        if (F('ref-error-list') && $status !== 401) $body = ['error' => [$err]];
        if (F('ref-error-string') && $status === 402) $body = ['error' => $err['message']];
        if (F('ref-error-trace') && $status === 400) $body['error']['message'] = "Fatal error: Uncaught TypeError in /srv/node/wallet.php:112\nStack trace:\n#0 /srv/node/router.php(88): NodeApi::send()\n#1 {main}";
        if (F('ref-error-empty') && $status === 402) { $r->conn->respond(402, ['Content-Type' => 'application/json'], ''); return; }
        $headers = ['Content-Type' => F('fld-type-html-error') ? 'text/html' : 'application/json'];
        if ($status === 401 && !P('no-challenge')) $headers['WWW-Authenticate'] = 'Bearer';
        if ($status === 429) $headers['Retry-After'] = '1';
        $r->conn->respond($status, $headers, jenc($body));
    }
}

/** What faulty nodes do to refusals. */
final class RefusalFaults
{
    private static int $n = 0;

    public static function apply(int &$status, array $err, ?string $route): array
    {
        if ($status === 401) {
            if (F('ref-401-code')) $err['code'] = 'INVALID_TOKEN';
            if (F('ref-401-lower')) $err['code'] = 'unauthorized';
            if (F('ref-401-details')) $err['details'] = ['reason' => 'token'];
            if (F('ref-401-403')) $status = 403;
            if (F('ref-401-code-int')) $err['code'] = 401;
            if (F('ref-401-no-message')) unset($err['message']);
            if (F('ref-401-wallet-404') && $route !== null && str_contains($route, '/wallet/')) { $status = 404; $err['code'] = 'NOT_FOUND'; }
            if (F('ref-401-second') && ++self::$n > 1) { $status = 400; $err['code'] = 'BAD_REQUEST'; }
        }
        if ($status === 402) {
            if (F('ref-402-400')) $status = 400;
            if (F('ref-402-code')) $err['code'] = 'INSUFFICIENT_FUNDS';
            if (F('ref-402-required-string')) $err['details']['required'] = (string)$err['details']['required'];
            if (F('ref-402-atoms')) { $err['details']['required'] *= UNIT; $err['details']['available'] *= UNIT; }
            if (F('ref-402-no-available')) unset($err['details']['available']);
            if (F('ref-402-swapped')) [$err['details']['required'], $err['details']['available']] = [$err['details']['available'], $err['details']['required']];
            if (F('ref-402-missing-amount')) $err['details']['required'] -= $err['details']['available'];
            if (F('ref-402-details-list')) $err['details'] = array_values($err['details']);
            if (F('ref-402-details-text')) $err['details'] = 'too little';
            if (F('ref-402-stake-400') && $route === 'POST /wallet/stake') { $status = 400; $err['code'] = 'INVALID_REQUEST'; }
            if (F('ref-402-inference-403') && $route === 'POST /inference') $status = 403;
            if (F('ref-402-available-total') ) $err['details']['available'] = units(Accounts::$all[Guard::$current]['available'] + Accounts::$all[Guard::$current]['staked'] + Accounts::$all[Guard::$current]['pending']) + 1;
            if (F('ref-402-message-null')) $err['message'] = null;
        }
        if ($status === 429) {
            if (F('ref-429-503')) $status = 503;
            if (F('ref-429-string')) $err['details']['retry_after'] = '1s';
            if (F('ref-429-ms')) $err['details']['retry_after'] = 1000;
            if (F('ref-429-code')) $err['code'] = 'TOO_MANY_REQUESTS';
            if (F('ref-429-none')) unset($err['details']['retry_after']);
        }
        if ($status === 400) {
            if (F('ref-400-500')) { $status = 500; $err['code'] = 'INTERNAL'; }
            if (F('ref-400-200')) $status = 200;
            if (F('ref-400-code-missing')) unset($err['code']);
        }
        return $err;
    }
}
