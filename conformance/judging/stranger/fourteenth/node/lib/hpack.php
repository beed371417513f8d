<?php
declare(strict_types=1);

final class Hpack
{
    private static ?array $tables = null;
    private static array $huff = [];
    private static array $cache = [];
    private array $dyn = [];
    private int $size = 0;
    private int $max = 4096;

    public function __construct()
    {
        if (self::$tables === null) {
            self::$tables = require __DIR__ . '/rfc7541.php';
            foreach (self::$tables['huffman'] as $sym => [$code, $len]) self::$huff[$len][$code] = $sym;
        }
    }

    private static function int(string $s, int &$i, int $bits): int
    {
        $mask = (1 << $bits) - 1;
        $n = ord($s[$i++] ?? throw new RuntimeException('hpack')) & $mask;
        if ($n < $mask) return $n;
        for ($m = 0; ; $m += 7) {
            $b = ord($s[$i++] ?? throw new RuntimeException('hpack'));
            $n += ($b & 127) << $m;
            if (!($b & 128)) return $n;
            if ($m > 28) throw new RuntimeException('hpack: number');
        }
    }

    private static function text(string $s, int &$i): string
    {
        $huff = ord($s[$i] ?? throw new RuntimeException('hpack')) & 128;
        $n = self::int($s, $i, 7);
        if ($i + $n > strlen($s)) throw new RuntimeException('hpack: text');
        $raw = substr($s, $i, $n);
        $i += $n;
        return $huff ? self::huffman($raw) : $raw;
    }

    private static function huffman(string $raw): string
    {
        if (isset(self::$cache[$raw])) return self::$cache[$raw];
        $out = ''; $code = 0; $len = 0;
        for ($i = 0, $n = strlen($raw); $i < $n; $i++) {
            $b = ord($raw[$i]);
            for ($k = 7; $k >= 0; $k--) {
                $code = $code << 1 | ($b >> $k & 1);
                if (++$len > 30) throw new RuntimeException('hpack: huffman');
                if (isset(self::$huff[$len][$code])) { $out .= chr(self::$huff[$len][$code]); $code = 0; $len = 0; }
            }
        }
        if ($len > 7 || $code !== (1 << $len) - 1) throw new RuntimeException('hpack: padding');
        if (count(self::$cache) > 500) self::$cache = [];
        return self::$cache[$raw] = $out;
    }

    private function at(int $i): array
    {
        if ($i < 1) throw new RuntimeException('hpack: index');
        return $i <= 61 ? self::$tables['static'][$i - 1] : ($this->dyn[$i - 62] ?? throw new RuntimeException('hpack: index'));
    }

    private function shrink(): void
    {
        while ($this->size > $this->max) { [$n, $v] = array_pop($this->dyn); $this->size -= strlen($n) + strlen($v) + 32; }
    }

    /** @return array<string,string> */
    public function decode(string $s): array
    {
        $h = [];
        for ($i = 0, $n = strlen($s); $i < $n;) {
            $b = ord($s[$i]);
            if ($b & 128) [$k, $v] = $this->at(self::int($s, $i, 7));
            elseif (($b & 0xe0) === 0x20) { $m = self::int($s, $i, 5); if ($m > 4096) throw new RuntimeException('hpack: size'); $this->max = $m; $this->shrink(); continue; }
            else {
                $index = ($b & 0xc0) === 0x40;
                $x = self::int($s, $i, $index ? 6 : 4);
                $k = $x ? $this->at($x)[0] : self::text($s, $i);
                $v = self::text($s, $i);
                if ($index) { array_unshift($this->dyn, [$k, $v]); $this->size += strlen($k) + strlen($v) + 32; $this->shrink(); }
            }
            $h[$k] = isset($h[$k]) ? $h[$k] . ',' . $v : $v;
        }
        return $h;
    }

    private static function len(int $n): string
    {
        if ($n < 127) return chr($n);
        $s = chr(127); $n -= 127;
        while ($n > 127) { $s .= chr($n & 127 | 128); $n >>= 7; }
        return $s . chr($n);
    }

    public static function encode(array $headers): string
    {
        $s = '';
        foreach ($headers as $k => $v) {
            if ($k === ':status' && $v === '200') { $s .= "\x88"; continue; }
            $s .= "\0" . self::len(strlen($k)) . $k . self::len(strlen((string)$v)) . $v;
        }
        return $s;
    }
}
