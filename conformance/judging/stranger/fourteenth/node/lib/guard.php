<?php
declare(strict_types=1);

/** Bearer tokens. */
final class Guard
{
    public static ?string $current = null;
    private static ?string $lastGood = null;
    private static bool $lastBad = false;
    private static int $n = 0;

    private static function match(string $token): ?string
    {
        $all = Accounts::$tokens;
        if (isset($all[$token])) return $all[$token];
        if (FAULT === null) return null;
        if (F('guard-expired') && $token === Accounts::EXPIRED) return 'main';
        foreach ($all as $t => $name) {
            if (F('guard-prefix') && strlen($token) >= 8 && str_starts_with($t, $token)) return $name;
            if (F('guard-longer') && str_starts_with($token, $t)) return $name;
            if (F('guard-anycase') && strcasecmp($t, $token) === 0) return $name;
            if (F('guard-first-16') && substr($t, 0, 16) === substr($token, 0, 16)) return $name;
            if (F('guard-last-char') && substr($t, 0, -1) === substr($token, 0, -1)) return $name;
            if (F('guard-suffix') && strlen($token) > 8 && str_ends_with($t, $token)) return $name;
            if (F('guard-similar') && similar_text($t, $token, $pc) && $pc > 88) return $name;
            if (F('guard-address-is-token') && $token === Accounts::$all[$name]['address']) return $name;
            if (F('guard-reversed') && strrev($t) === $token) return $name;
            if (F('guard-like') && fnmatch($token, $t) && strlen($token) > 0) return $name;
        }
        if (F('guard-loose') && ($token == '0' || strtolower($token) === 'null' || strtolower($token) === 'undefined')) return 'main';
        return null;
    }

    private static function write(string $route): bool { return !str_starts_with($route, 'GET'); }

    public static function check(Request $r, string $route): void
    {
        self::$n++;
        $h = $r->header('authorization');
        $name = null;
        if ($h !== null && preg_match(P('bearer-exact') ? '/^Bearer +(\S+)$/' : '/^bearer +(\S+)$/i', $h, $m)) $name = self::match($m[1]);
        if (FAULT !== null && str_starts_with(FAULT, 'guard-')) $name = self::faulty($r, $route, $h, $name);
        self::$lastBad = $name === null;
        if ($name === null) throw new HttpError(401, 'UNAUTHORIZED', $h === null ? 'a bearer token is needed' : 'the token is unknown or has expired');
        self::$current = self::$lastGood = $name;
        $r->account = &Accounts::$all[$name];
        $r->conn->lastAccount = ['name' => $name];
    }

    private static function faulty(Request $r, string $route, ?string $h, ?string $name): ?string
    {
        $token = $h !== null && preg_match('/^\S+\s+(.*)$/', $h, $m) ? $m[1] : null;
        $none = $h === null;
        $expired = $token === Accounts::EXPIRED;
        foreach (['peers' => 'GET /peers', 'layers' => 'GET /layers', 'config' => 'GET /config', 'patch' => 'PATCH /config', 'proofs' => 'GET /proofs', 'balance' => 'GET /wallet/balance', 'history' => 'GET /wallet/transactions', 'send' => 'POST /wallet/send', 'stake' => 'POST /wallet/stake', 'unstake' => 'POST /wallet/unstake', 'inference' => 'POST /inference'] as $id => $x) {
            if ($x !== $route) continue;
            if (F("guard-open-$id") && $none) return 'main';
            if (F("guard-invalid-$id") && !$none && $name === null) return 'main';
            if (F("guard-expired-$id") && $expired) return 'main';
        }
        if ($name === null) {
            if (F('guard-expired-writes') && $expired && self::write($route)) return 'second';
            if (F('guard-query-token') && isset($r->query['token'])) return self::match($r->query['token']);
            if (F('guard-query-access') && isset($r->query['access_token'])) return self::match($r->query['access_token']);
            if (F('guard-basic') && $h !== null && stripos($h, 'basic ') === 0) return 'main';
            if (F('guard-any-scheme') && $token !== null) return self::match(trim($token));
            if (F('guard-bare') && $h !== null) return self::match(trim($h));
            if (F('guard-empty-bearer') && $h !== null && preg_match('/^bearer\s*$/i', $h)) return 'main';
            if (F('guard-conn-sticky') && $r->conn->lastAccount) return $r->conn->lastAccount['name'];
            if (F('guard-conn-sticky-writes') && $r->conn->lastAccount && self::write($route)) return $r->conn->lastAccount['name'];
            if (F('guard-conn-sticky-none') && $none && $r->conn->lastAccount) return $r->conn->lastAccount['name'];
            if (F('guard-global-sticky') && $none && self::$lastGood) return self::$lastGood;
            if (F('guard-head') && $r->method === 'HEAD') return 'main';
            if (F('guard-stream') && str_contains($r->body, '"stream"') && $route === 'POST /inference') return 'main';
            if (F('guard-while-busy') && Metrics::$active > 0) return 'main';
            if (F('guard-empty-body') && $route === 'PATCH /config' && trim($r->body) === '{}') return 'main';
            if (F('guard-with-query') && $r->rawQuery !== '') return 'main';
            if (F('guard-cookie-only') && isset($r->headers['cookie'])) return 'main';
            if (F('guard-x-forwarded') && $none && isset($r->headers['x-forwarded-for'])) return 'main';
            if (F('guard-list') && $token !== null) foreach (preg_split('/[\s,]+/', $token) as $t) if ($n = self::match($t)) return $n;
            if (F('guard-crash') && $h !== null && !preg_match('/^bearer \S+$/i', $h)) throw new HttpError(500, 'INTERNAL', 'undefined offset 1');
            if (F('guard-body-first') && self::write($route) && json_decode($r->body) === null) throw new HttpError(400, 'INVALID_REQUEST', 'the body is not JSON');
            if (F('guard-fields-first') && self::write($route) && $route !== 'PATCH /config' && (!is_array($b = json_decode($r->body, true)) || !(isset($b['amount']) || isset($b['prompt'])))) throw new HttpError(400, 'INVALID_REQUEST', 'a field is missing');
            if (F('guard-query-first') && isset($r->query['limit']) && !ctype_digit($r->query['limit'])) throw new HttpError(400, 'INVALID_REQUEST', 'not a limit');
            if (F('guard-every-tenth') && self::$n % 10 === 0) return 'main';
            return null;
        }
        if (F('guard-refused-conn') && $r->conn->refusedBefore) return null;
        if (F('guard-after-refusal') && self::$lastBad && self::$n % 2) return null;
        if (F('guard-swap-conn') && $r->conn->lastAccount) return $r->conn->lastAccount['name'];
        if (F('guard-second-is-main') && $name === 'second') return 'main';
        if (F('guard-second-closed') && $name === 'second' && $route === 'GET /proofs') return null;
        if (F('guard-second-send') && $name === 'second' && $route === 'POST /wallet/send') throw new HttpError(403, 'FORBIDDEN', 'only the owner may send');
        if (F('guard-second-stake') && $name === 'second' && $route === 'POST /wallet/stake') throw new HttpError(403, 'FORBIDDEN', 'only the owner may stake');
        if (F('guard-second-unstake') && $name === 'second' && $route === 'POST /wallet/unstake') return null;
        if (F('guard-second-stream') && $name !== 'main' && str_contains($r->body, '"stream"')) return null;
        if (F('guard-history-main') && $route === 'GET /wallet/transactions') return 'main';
        if (F('guard-proofs-main') && $route === 'GET /proofs' && $name === 'second') return 'main';
        if (F('guard-balance-last') && $route === 'GET /wallet/balance' && self::$lastGood) return self::$lastGood;
        if (F('guard-token-once-40') && self::$n % 40 === 39) return null;
        if (F('guard-busy-refused') && Metrics::$active > 1) return null;
        if (F('guard-type-needed') && self::write($route) && ($r->header('content-type') ?? '') !== 'application/json') return null;
        return $name;
    }
}
