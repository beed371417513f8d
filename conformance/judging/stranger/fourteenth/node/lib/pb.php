<?php
declare(strict_types=1);

/** Protocol buffers: messages are arrays by field name; the schemas are in Schema. */
final class Pb
{
    private static function varint(int $n): string
    {
        $s = '';
        for ($i = 0; $i < 10; $i++) {
            $b = $n & 127;
            $n = $n >> 7 & 0x01ffffffffffffff;
            if ($n === 0) return $s . chr($b);
            $s .= chr($b | 128);
        }
        return $s;
    }

    private static function readVarint(string $s, int &$i, int $end): int
    {
        $n = 0;
        for ($k = 0; $k < 64; $k += 7) {
            if ($i >= $end) throw new RpcError(3, 'the message is cut');
            $b = ord($s[$i++]);
            $n |= ($b & 127) << $k;
            if (!($b & 128)) return $n;
        }
        throw new RpcError(3, 'a number is too long');
    }

    public static function encode(string $type, array $m): string
    {
        $s = '';
        foreach (Schema::T[$type] as $num => [$name, $kind, $rep]) {
            $v = $m[$name] ?? null;
            if ($v === null) continue;
            $num = GrpcFaults::number($type, $name, $num);
            $kind = GrpcFaults::kind($type, $name, $kind);
            if ($rep && in_array($kind, ['int32', 'int64'], true)) {
                if (!$v) continue;
                if (P('unpacked')) { foreach ($v as $x) $s .= self::varint($num << 3) . self::varint($x); continue; }
                $p = implode('', array_map([self::class, 'varint'], $v));
                $s .= self::varint($num << 3 | 2) . self::varint(strlen($p)) . $p;
                continue;
            }
            foreach ($rep ? $v : [$v] as $x) {
                switch ($kind) {
                    case 'string': case 'bytes':
                        $x = (string)$x;
                        if ($x === '' && !$rep && !P('write-defaults')) break;
                        $s .= self::varint($num << 3 | 2) . self::varint(strlen($x)) . $x; break;
                    case 'int32': case 'int64': case 'bool':
                        if (!$x && !P('write-defaults')) break;
                        $s .= self::varint($num << 3) . self::varint((int)$x); break;
                    case 'double':
                        if ($x == 0 && !P('write-defaults')) break;
                        $s .= self::varint($num << 3 | 1) . pack('e', $x); break;
                    case 'float':
                        $s .= self::varint($num << 3 | 5) . pack('g', $x); break;
                    case 'map':
                        break;
                    default:
                        $p = self::encode($kind, $x);
                        $s .= self::varint($num << 3 | 2) . self::varint(strlen($p)) . $p;
                }
            }
            if ($kind === 'map') foreach ($m[$name] as $k => $x) {
                $p = "\x0a" . self::varint(strlen((string)$k)) . $k . "\x12" . self::varint(strlen($x)) . $x;
                $s .= self::varint($num << 3 | 2) . self::varint(strlen($p)) . $p;
            }
        }
        if (P('unknown-fields') && str_ends_with($type, 'Response')) $s .= self::varint(1990 << 3) . "\x01";
        return $s;
    }

    public static function decode(string $type, string $s): array
    {
        $m = [];
        foreach (Schema::T[$type] as [$name, $kind, $rep]) {
            if ($type === 'InferenceRequest' && in_array($name, ['max_tokens', 'temperature', 'top_p', 'top_k', 'seed'], true)) { $m[$name] = null; continue; }
            $m[$name] = $rep || $kind === 'map' ? [] : match ($kind) { 'string', 'bytes' => '', 'int32', 'int64' => 0, 'bool' => false, 'double' => 0.0, default => null };
        }
        for ($i = 0, $end = strlen($s); $i < $end;) {
            $tag = self::readVarint($s, $i, $end);
            $num = $tag >> 3;
            $wire = $tag & 7;
            if ($num < 1) throw new RpcError(3, 'field number 0');
            $v = null;
            switch ($wire) {
                case 0: $v = self::readVarint($s, $i, $end); break;
                case 1: if ($i + 8 > $end) throw new RpcError(3, 'the message is cut'); $v = substr($s, $i, 8); $i += 8; break;
                case 5: if ($i + 4 > $end) throw new RpcError(3, 'the message is cut'); $v = substr($s, $i, 4); $i += 4; break;
                case 2: $n = self::readVarint($s, $i, $end); if ($n < 0 || $i + $n > $end) throw new RpcError(3, 'the message is cut'); $v = substr($s, $i, $n); $i += $n; break;
                case 3: case 4: if (!isset(Schema::T[$type][$num])) throw new RpcError(3, 'groups are not taken'); break;
                default: throw new RpcError(3, 'unknown wire type');
            }
            $f = Schema::T[$type][$num] ?? null;
            $f = GrpcFaults::field($type, $num, $f);
            if ($f === null) { if (F('grpc-unknown-fields-refused')) throw new RpcError(3, 'unknown field'); continue; }
            [$name, $kind, $rep] = $f;
            if (F('grpc-order-needed')) { $m['_last'] ??= 0; if ($num < $m['_last']) throw new RpcError(3, 'fields out of order'); $m['_last'] = $num; }
            if (in_array($kind, ['int32', 'int64', 'bool'], true)) {
                if ($wire === 2 && $rep) {
                    if (F('grpc-packed-refused')) throw new RpcError(3, 'packed');
                    for ($k = 0, $e2 = strlen($v); $k < $e2;) $m[$name][] = self::int($kind, self::readVarint($v, $k, $e2));
                    continue;
                }
                if ($wire !== 0) continue;
                $v = self::int($kind, $v);
                if ($rep) { if (F('grpc-unpacked-lost')) $m[$name] = []; $m[$name][] = $v; } else $m[$name] = $v;
                continue;
            }
            if ($kind === 'double') { if ($wire === 1) $m[$name] = unpack('e', $v)[1]; continue; }
            if ($wire !== 2) continue;
            if ($kind === 'map') {
                $e = self::decode('MapEntry', $v);
                if (F('grpc-map-text') && !mb_check_encoding($e['value'], 'UTF-8')) throw new RpcError(3, 'a gradient is no text');
                $m[$name][$e['key']] = $e['value'];
                continue;
            }
            if ($kind === 'string') { if (!mb_check_encoding($v, 'UTF-8')) throw new RpcError(3, "$name is no text"); }
            elseif ($kind !== 'bytes') $v = self::decode($kind, $v);
            if ($rep) $m[$name][] = $v; else $m[$name] = $v;
        }
        return $m;
    }

    private static function int(string $kind, int $v): int|bool
    {
        if ($kind === 'bool') return $v !== 0;
        if ($kind === 'int64') return $v;
        if (F('grpc-int32-unsigned')) return $v & 0xffffffff;
        $v &= 0xffffffff;
        return $v > 0x7fffffff ? $v - 0x100000000 : $v;
    }
}

/** LZ4 frames. */
final class Lz4
{
    public static function compress(string $s): string
    {
        $flg = P('lz4-checksum') ? 0x60 : 0x60;
        $desc = chr($flg) . "\x70";
        $out = "\x04\x22\x4d\x18" . $desc . chr(hexdec(substr(hash('xxh32', $desc), 0, 6)) & 0xff);
        foreach (str_split($s, 1 << 20) as $b) if ($b !== '') $out .= pack('V', strlen($b) | 0x80000000) . $b;
        return $out . "\0\0\0\0";
    }

    public static function decompress(string $s, int $most = 1 << 26): ?string
    {
        if (substr($s, 0, 4) !== "\x04\x22\x4d\x18" || strlen($s) < 11) return null;
        $flg = ord($s[4]);
        if ($flg >> 6 !== 1) return null;
        $i = 6 + ($flg & 8 ? 8 : 0) + ($flg & 1 ? 4 : 0);
        $i++;
        $out = '';
        while (true) {
            if ($i + 4 > strlen($s)) return null;
            $n = unpack('V', $s, $i)[1];
            $i += 4;
            if ($n === 0) break;
            $raw = $n & 0x80000000;
            $n &= 0x7fffffff;
            if ($i + $n > strlen($s)) return null;
            $b = substr($s, $i, $n);
            $i += $n + ($flg & 16 ? 4 : 0);
            if ($raw) $out .= $b;
            elseif (!self::block($b, $out, $most)) return null;
            if (strlen($out) > $most) return null;
            if (F('grpc-lz4-one-block')) break;
        }
        return $out;
    }

    private static function block(string $b, string &$out, int $most): bool
    {
        for ($i = 0, $n = strlen($b); $i < $n;) {
            $t = ord($b[$i++]);
            $lit = $t >> 4;
            if ($lit === 15) do { if ($i >= $n) return false; $x = ord($b[$i++]); $lit += $x; } while ($x === 255);
            if ($i + $lit > $n) return false;
            $out .= substr($b, $i, $lit);
            $i += $lit;
            if ($i >= $n) return true;
            if ($i + 2 > $n) return false;
            $off = ord($b[$i]) | ord($b[$i + 1]) << 8;
            $i += 2;
            $len = ($t & 15) + 4;
            if (($t & 15) === 15) do { if ($i >= $n) return false; $x = ord($b[$i++]); $len += $x; } while ($x === 255);
            $have = strlen($out);
            if ($off === 0 || $off > $have || $have + $len > $most) return false;
            if ($off >= $len) $out .= substr($out, $have - $off, $len);
            else $out .= substr(str_repeat(substr($out, $have - $off), intdiv($len, $off) + 1), 0, $len);
        }
        return true;
    }
}
