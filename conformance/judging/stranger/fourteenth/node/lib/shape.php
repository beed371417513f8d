<?php
declare(strict_types=1);

/** Faults in the form and the figures of answers: a table of places and what happens to them (faults/shape.txt). */
final class Shape
{
    private static ?array $rule = null;
    private static int $n = 0;
    private static array $memo = [];

    public static function load(): array
    {
        $out = [];
        foreach (file(__DIR__ . '/../faults/shape.txt', FILE_IGNORE_NEW_LINES | FILE_SKIP_EMPTY_LINES) as $l) {
            if ($l[0] === '#') continue;
            [$kind, $id, $route, $path, $op, $cond, $section, $sentence, $what] = array_map('trim', explode('|', $l));
            $out[$id] = compact('kind', 'id', 'route', 'path', 'op', 'cond', 'section', 'sentence', 'what');
        }
        return $out;
    }

    public static function start(): void { if (FAULT !== null) self::$rule = self::load()[FAULT] ?? null; }

    public static function apply(string $route, array $data, ?Request $r): array
    {
        $x = self::$rule;
        if ($x === null || $x['route'] !== $route) return $data;
        self::$n++;
        $ok = match ($x['cond']) {
            '' => true,
            'later' => self::$n > 1,
            'third' => self::$n % 3 === 0,
            'tenth' => self::$n > 10,
            'second' => Guard::$current === 'second',
            'errored' => Router::$errored,
            'generated' => Metrics::$requests > 0,
            'kept' => $r !== null && $r->conn->served > 1,
            'patched' => NodeApi::$patched,
            'moved' => Accounts::$seq > 0,
            'busy' => Metrics::$active > 0,
            'staked' => $r !== null && ($r->account['staked'] ?? 0) > 0,
            'pending' => $r !== null && ($r->account['pending'] ?? 0) > 0,
            default => true,
        };
        if ($ok) self::walk($data, explode('.', $x['path']), $x['op'], $data);
        return $data;
    }

    private static function walk(mixed &$at, array $path, string $op, array $root): void
    {
        $k = array_shift($path);
        if (str_ends_with($k, ']')) {             // name[], name[last], name[send]
            [$k, $which] = explode('[', substr($k, 0, -1));
            if ($k !== '') { if (!isset($at[$k])) return; $list = &$at[$k]; } else $list = &$at;
            if (!is_array($list)) return;
            $last = count($list) - 1;
            foreach (array_keys($list) as $i => $key) {
                if ($which === 'last' && $i !== $last) continue;
                if ($which === 'first' && $i !== 0) continue;
                if ($which !== '' && !in_array($which, ['last', 'first'], true) && ($list[$key]['type'] ?? null) !== $which) continue;
                if (!$path) { self::op($list, $key, $op, $root); continue; }
                self::walk($list[$key], $path, $op, $root);
            }
            if (is_array($list)) $list = array_is_list($list) ? $list : (isset($at[$k]) ? array_values($list) : $list);
            return;
        }
        if ($at instanceof stdClass || !is_array($at) || !array_key_exists($k, $at)) return;
        if (!$path) { self::op($at, $k, $op, $root); return; }
        self::walk($at[$k], $path, $op, $root);
    }

    private static function op(array &$in, string|int $k, string $op, array $root): void
    {
        [$name, $arg] = array_pad(explode(':', $op, 2), 2, '');
        $v = &$in[$k];
        switch ($name) {
            case 'drop': unset($v); unset($in[$k]); break;
            case 'null': $v = null; break;
            case 'str': $v = is_bool($v) ? ($v ? 'true' : 'false') : (is_array($v) ? implode(',', array_map('strval', $v)) : (string)$v); break;
            case 'strs': $v = array_map('strval', $v); break;
            case 'num': $v = is_numeric($v) ? $v + 0 : crc32((string)$v); break;
            case 'int': $v = (int)$v; break;
            case 'bool': $v = (bool)$v; break;
            case 'bit': $v = $v ? 1 : 0; break;
            case 'half': $v = $v + 0.5; break;
            case 'neg': $v = -abs($v) - ($v == 0 ? 1 : 0); break;
            case 'mul': $v = $v * (float)$arg; if (floor($v) == $v && abs($v) < 1e15) $v = (int)$v; break;
            case 'add': $v = $v + ($arg + 0); break;
            case 'set': $v = json_decode($arg, true) ?? $arg; break;
            case 'upper': $v = strtoupper($v); break;
            case 'cap': $v = ucfirst($v); break;
            case 'list': $v = [$v]; break;
            case 'obj': $v = obj(is_array($v) ? array_combine(array_map(fn($i) => "k$i", array_keys($v)), $v) : ['value' => $v]); break;
            case 'values': $v = array_values($v); break;
            case 'push': $v[] = $v[0]; break;
            case 'pop': array_pop($v); break;
            case 'rename': $in[$arg] = $v; unset($in[$k]); break;
            case 'space': $v = strtr($v, 'T', ' '); break;
            case 'local': $v = gmdate('Y-m-d\TH:i:s', strtotime($v) + 7200) . '.000Z'; break;
            case 'unix': $v = strtotime($v); break;
            case 'future': $v = gmdate('Y-m-d\TH:i:s.000\Z', time() + 3600); break;
            case 'nozone': $v = preg_replace('/(Z|\+00:00)$/', '', $v); break;
            case 'german': $v = gmdate('d.m.Y', strtotime($v)); break;
            case 'datetime': $v = $v . 'T00:00:00Z'; break;
            case 'stale': self::$memo['s'] ??= $v; $v = self::$memo['s']; break;
            case 'random': $v = 'kestrel-' . bin2hex(random_bytes(6)); break;
            case 'count': $v = self::$n; break;
            case 'float': $v = (float)sprintf('%.2f', $v) ; break;
            case 'from': foreach ($root as $x) {} $v = self::dig($root, $arg); break;
            case 'noport': $v = explode(':', $v)[0]; break;
            case 'url': $v = 'http://' . $v; break;
            case 'rev': $v = array_reverse($v); break;
        }
    }

    private static function dig(array $root, string $path): mixed
    {
        foreach (explode('.', $path) as $k) $root = $root[$k] ?? null;
        return $root;
    }
}
