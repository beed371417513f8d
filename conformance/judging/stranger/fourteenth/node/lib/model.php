<?php
declare(strict_types=1);

/** A toy: the text is drawn from a short list of words by a hash of the prompt. */
final class Model
{
    public const LAYERS = 6;
    public const HELD = [2, 3, 4, 5];
    public const HIDDEN = 16;
    public const VOCAB = 32;
    public const ROUND = 7;
    public const MAX_TOKENS = 2048;
    public const PRICE_PROMPT = 2;        // atoms for each byte of the prompt
    public const PRICE_TOKEN = 50;        // atoms for each generated token
    private const WORDS = ['river', 'stone', 'amber', 'café', 'lantern', 'quiet', 'falcon', 'meadow', 'Größe', 'signal', 'copper', 'winter', 'over', 'under', 'the', 'a', 'slowly', 'naïve', 'orbit', 'paper', 'glass', 'north', 'moss', 'echo', 'violet', 'harbor', 'drift', 'ember', 'frost', 'grain', 'hollow', 'ivory'];

    public static function hash(): string { return hash('sha256', 'kestrel/model/round/' . self::ROUND); }

    public static function promptTokens(string $prompt): int
    {
        if (F('rel-prompt-words')) return 5;
        return strlen($prompt) + 1;
    }

    /** @return array{text:string,pieces:string[],tokens:int,finish:string} */
    public static function generate(string $prompt, int $max, float $temperature, array $stop, bool $stream = false): array
    {
        $max = min($max, self::MAX_TOKENS);
        if (F('eff-max-minus-prompt')) $max = max(1, $max - (int)(self::promptTokens($prompt) / 8));
        if (F('eff-max-plus-one') && $max > 0) $max++;
        if (F('eff-stream-max-plus-one') && $stream) $max++;
        if (F('eff-zero-is-default') && $max === 0) $max = 100;
        if (F('lim-max-64')) $max = min($max, 64);
        $key = F('eff-prompt-tail') ? substr($prompt, -12) : (F('eff-prompt-head') ? substr($prompt, 0, 12) : (F('eff-prompt-ends') ? substr($prompt, 0, 16) . substr($prompt, -16) : $prompt));
        static $last = '';
        if (F('eff-prompt-before') && $last !== '' && Metrics::$active > 1) $key = $last;
        $last = $prompt;
        $seed = hash('sha256', $key, true);
        if ($temperature > 0 && !P('always-greedy')) $seed = hash('sha256', $seed . random_bytes(8), true);
        $pieces = [];
        $block = '';
        for ($i = 0; $i < $max; $i++) {
            if ($i % 32 === 0) $block = hash('sha256', $seed . pack('N', $i), true);
            $w = self::WORDS[ord($block[$i % 32]) % 32];
            if ($i % 11 === 10) $w .= '.';
            $pieces[] = ($i ? ' ' : '') . $w;
        }
        $finish = 'length';
        if (P('early-end') && ord($seed[0]) % 2 === 0 && count($pieces) > 40) { $pieces = array_slice($pieces, 0, 40); $finish = 'stop'; }
        $text = implode('', $pieces);
        if (F('eff-stop-first-only')) $stop = array_slice($stop, 0, 1);
        if (F('eff-stop-trim')) $stop = array_map('trim', $stop);
        if (F('eff-stop-stream-ignored') && $stream) $stop = [];
        static $kept = [];
        if (F('eff-stop-leaks')) { $both = array_merge($stop, $kept); if ($stop) $kept = $stop; else $kept = []; $stop = $both; }
        if (F('eff-stop-dot-default')) $stop[] = '.';
        $cut = null;
        $cutLen = 0;
        foreach ($stop as $s) {
            if ($s === '') continue;
            if (F('eff-stop-case')) $p = stripos($text, $s);
            elseif (F('eff-stop-regex')) $p = @preg_match('/' . str_replace('/', '\/', $s) . '/u', $text, $m, PREG_OFFSET_CAPTURE) ? $m[0][1] : false;
            elseif (F('eff-stop-first-char')) $p = mb_strpos($text, mb_substr($s, 0, 1)) === false ? false : strpos($text, mb_substr($s, 0, 1));
            else $p = strpos($text, $s);
            if (F('eff-stop-word-only')) { $p = false; $at = 0; foreach ($pieces as $x) { if (trim($x) === trim($s)) { $p = $at; break; } $at += strlen($x); } }
            if ($p !== false && ($cut === null || $p < $cut)) { $cut = $p; $cutLen = strlen($s); }
            if (F('eff-stop-list-order') && $cut !== null) break;
        }
        $tokens = count($pieces);
        if ($cut !== null) {
            $finish = P('finish-stop-sequence') ? 'stop_sequence' : 'stop';
            if (F('eff-stop-flag-only')) $cut = strlen($text);
            $end = $cut + $cutLen;
            $n = 0;
            for ($len = 0; $n < count($pieces) && $len < $end; $n++) $len += strlen($pieces[$n]);
            $keepStop = P('stop-kept') || (F('eff-stop-kept-at-end') && $n === count($pieces)) || (F('eff-stop-kept-stream') && $stream);
            $full = $tokens;
            $tokens = F('cnt-early-asked') ? $full : $n;
            if (F('eff-stop-half') ) $n = max(1, intdiv($n, 2));
            if (F('eff-stop-too-late')) $keepStop = $end += 9;
            $text = substr($text, 0, F('eff-stop-half') ? intdiv($cut, 2) : ($keepStop ? $end : $cut));
            $text = mb_strcut($text, 0, strlen($text));
            $out = []; $left = strlen($text);
            foreach ($pieces as $p) {
                if ($left <= 0) break;
                $out[] = mb_strcut($p, 0, $left);
                $left -= strlen($p);
            }
            $pieces = array_values(array_filter($out, fn($x) => $x !== ''));
        } elseif ($stop && F('eff-stop-absent-shorter')) { $pieces = array_slice($pieces, 0, -1); $text = implode('', $pieces); $tokens = count($pieces); }
        if (F('eff-text-html')) { $text = htmlentities($text); }
        if (F('eff-text-ascii')) { $text = preg_replace('/[^\x00-\x7f]+/', '?', $text); }
        return ['text' => $text, 'pieces' => $pieces, 'tokens' => $tokens, 'finish' => $finish];
    }

    public static function cost(string $prompt, int $tokens): int
    {
        return strlen($prompt) * self::PRICE_PROMPT + $tokens * self::PRICE_TOKEN + (P('base-price') ? 1000 : 0);
    }
}
