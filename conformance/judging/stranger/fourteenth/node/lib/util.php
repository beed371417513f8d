<?php
declare(strict_types=1);
// Small helpers that everything else uses.

const UNIT = 1_000_000;          // atoms in a whole unit
const CURRENCY = 'KSTL';
const NODE_VERSION = '2.3.1-php';

function F(string $id): bool { return FAULT === $id; }
function P(string $id): bool { return PECULIAR === $id; }

final class HttpError extends Exception
{
    public function __construct(public int $status, public string $errCode, string $message, public ?array $details = null)
    {
        parent::__construct($message);
    }
}

final class RpcError extends Exception
{
    public function __construct(public int $status, string $message)
    {
        parent::__construct($message);
    }
}

function now_iso(?float $t = null): string
{
    $t ??= microtime(true);
    if (P('time-seconds')) return gmdate('Y-m-d\TH:i:s\Z', (int)$t);
    if (P('time-offset')) return gmdate('Y-m-d\TH:i:s', (int)$t) . '+00:00';
    $ms = (int)floor(($t - floor($t)) * 1000);
    return gmdate('Y-m-d\TH:i:s', (int)$t) . sprintf(P('time-micros') ? '.%03d000Z' : '.%03dZ', $ms);
}

/** A time with microseconds, so that two readings of changing figures differ. */
function now_micro(?float $t = null): string
{
    $t ??= microtime(true);
    return gmdate('Y-m-d\TH:i:s', (int)$t) . sprintf('.%06d', (int)(($t - floor($t)) * 1e6)) . (P('time-offset') ? '+00:00' : 'Z');
}

function day(int $offset = 0): string { return gmdate('Y-m-d', time() + 86400 * $offset); }

/** Atoms as a JSON number of whole units. */
function units(int|float $atoms): int|float
{
    if (is_int($atoms) && $atoms % UNIT === 0 && !P('always-decimals')) return intdiv($atoms, UNIT);
    return round($atoms / UNIT, 6);
}

function jenc(mixed $v): string
{
    $flags = JSON_UNESCAPED_SLASHES | JSON_PRESERVE_ZERO_FRACTION;
    if (P('pretty-json')) $flags |= JSON_PRETTY_PRINT;
    if (P('raw-unicode')) $flags |= JSON_UNESCAPED_UNICODE;
    $s = json_encode($v, $flags);
    return $s === false ? '{}' : $s;
}

/** Canonical JSON: keys sorted, no blanks, nothing escaped that need not be. */
function canon(mixed $v): string
{
    if (is_array($v) && !array_is_list($v)) {
        ksort($v, SORT_STRING);
        $parts = [];
        foreach ($v as $k => $x) $parts[] = json_encode((string)$k, JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE) . ':' . canon($x);
        return '{' . implode(',', $parts) . '}';
    }
    if (is_array($v)) return '[' . implode(',', array_map('canon', $v)) . ']';
    return json_encode($v, JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE);
}

function obj(array $a): array|stdClass { return $a ?: new stdClass(); }

/** secp256k1 with SHA-256, DER signatures, by way of openssl. */
final class Keys
{
    private static array $cache = [];

    private static function order(): GMP { return gmp_init('FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141', 16); }

    /** @return array{0:string,1:OpenSSLAsymmetricKey} compressed public key in hex, private key */
    public static function of(string $name): array
    {
        if (isset(self::$cache[$name])) return self::$cache[$name];
        $d = hash('sha256', 'kestrel/account/' . $name, true);
        // ECPrivateKey { version 1, key, [0] secp256k1 } -- openssl derives the public point itself
        $der = hex2bin('302e0201010420') . $d . hex2bin('a00706052b8104000a');
        $key = openssl_pkey_get_private("-----BEGIN EC PRIVATE KEY-----\n" . chunk_split(base64_encode($der), 64, "\n") . "-----END EC PRIVATE KEY-----\n");
        $ec = openssl_pkey_get_details($key)['ec'];
        $x = str_pad($ec['x'], 32, "\0", STR_PAD_LEFT);
        $odd = ord($ec['y'][strlen($ec['y']) - 1]) & 1;
        return self::$cache[$name] = [($odd ? '03' : '02') . bin2hex($x), $key];
    }

    public static function sign(string $name, string $text): string
    {
        openssl_sign($text, $sig, self::of($name)[1], OPENSSL_ALGO_SHA256);
        return bin2hex($sig);
    }

    public static function verify(string $public, string $text, string $sigHex): bool
    {
        if (!preg_match('/^0[23][0-9a-f]{64}$/', $public) || !ctype_xdigit($sigHex) || strlen($sigHex) % 2) return false;
        $spki = hex2bin('3036301006072a8648ce3d020106052b8104000a032200') . hex2bin($public);
        $pem = "-----BEGIN PUBLIC KEY-----\n" . chunk_split(base64_encode($spki), 64, "\n") . "-----END PUBLIC KEY-----\n";
        $key = @openssl_pkey_get_public($pem);
        return $key && @openssl_verify($text, hex2bin($sigHex), $key, OPENSSL_ALGO_SHA256) === 1;
    }
}
