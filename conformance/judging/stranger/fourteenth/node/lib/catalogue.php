<?php
declare(strict_types=1);

/** All faults and peculiarities: faults/*.txt, one a line. */
final class Catalogue
{
    public static function faults(): array
    {
        $out = [];
        foreach (glob(__DIR__ . '/../faults/kind-*.txt') as $file) {
            foreach (file($file, FILE_IGNORE_NEW_LINES | FILE_SKIP_EMPTY_LINES) as $l) {
                if ($l[0] === '#') continue;
                [$id, $section, $sentence, $what] = array_map('trim', explode('|', $l, 4));
                $out[$id] = ['id' => $id, 'kind' => substr(basename($file, '.txt'), 5), 'section' => $section, 'sentence' => $sentence, 'what' => $what];
            }
        }
        foreach (Shape::load() as $id => $x) $out[$id] = ['id' => $id, 'kind' => $x['kind'], 'section' => $x['section'], 'sentence' => $x['sentence'], 'what' => $x['what']];
        return $out;
    }

    public static function peculiarities(): array
    {
        $out = [];
        foreach (file(__DIR__ . '/../faults/peculiar.txt', FILE_IGNORE_NEW_LINES | FILE_SKIP_EMPTY_LINES) as $l) {
            if ($l[0] === '#') continue;
            [$id, $what] = array_map('trim', explode('|', $l, 2));
            $out[$id] = ['id' => $id, 'what' => $what];
        }
        return $out;
    }

    public static function all(): array { return ['faults' => array_values(self::faults()), 'peculiarities' => array_values(self::peculiarities())]; }

    public static function check(): void
    {
        if (FAULT !== null && !isset(self::faults()[FAULT])) { fwrite(STDERR, 'unknown fault ' . FAULT . "\n"); exit(2); }
        if (PECULIAR !== null && !isset(self::peculiarities()[PECULIAR])) { fwrite(STDERR, 'unknown peculiarity ' . PECULIAR . "\n"); exit(2); }
    }
}
