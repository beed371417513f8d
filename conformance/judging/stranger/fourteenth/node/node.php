<?php
declare(strict_types=1);
ini_set('memory_limit', '-1');
ini_set('serialize_precision', '-1');
error_reporting(E_ALL);
set_error_handler(function (int $no, string $text, string $file, int $line): bool {
    if (!(error_reporting() & $no)) return false;
    throw new ErrorException($text, 0, $no, $file, $line);
});

$o = ['port' => 8000, 'fault' => null, 'peculiar' => null, 'peers' => [], 'list' => false, 'sign' => null];
for ($i = 1; $i < $argc; $i++) {
    switch ($argv[$i]) {
        case '--port': $o['port'] = (int)$argv[++$i]; break;
        case '--fault': $o['fault'] = $argv[++$i]; break;
        case '--peculiar': $o['peculiar'] = $argv[++$i]; break;
        case '--peer': $o['peers'][] = $argv[++$i]; break;
        case '--list': $o['list'] = true; break;
        case 'sign': $o['sign'] = $argv[++$i] ?? '{}'; break;
        default: fwrite(STDERR, "unknown option {$argv[$i]}\n"); exit(2);
    }
}
define('FAULT', $o['fault']);
define('PECULIAR', $o['peculiar']);
foreach (['util', 'loop', 'http', 'state', 'model', 'guard', 'shape', 'router', 'inference', 'wallet', 'nodeapi', 'chain', 'native', 'rpc', 'hpack', 'schema', 'pb', 'grpcfaults', 'h2', 'h2client', 'grpc', 'pipeline', 'dht', 'peers', 'catalogue', 'signer'] as $f) require __DIR__ . "/lib/$f.php";

if ($o['list']) { echo json_encode(Catalogue::all(), JSON_PRETTY_PRINT | JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE), "\n"; exit(0); }
if ($o['sign'] !== null) { Signer::run($o['sign']); exit(0); }
Catalogue::check();
if ($o['port'] < 1 || $o['port'] > 64535) { fwrite(STDERR, "the port is from 1 to 64535\n"); exit(2); }
pcntl_async_signals(true);
pcntl_signal(SIGTERM, fn() => exit(0));
pcntl_signal(SIGINT, fn() => exit(0));
Metrics::$start = microtime(true);
Config::init($o['port']);
Config::$peers = array_values(array_filter($o['peers'], fn($p) => preg_match('/^[\w.-]+:\d+$/', $p)));
Accounts::init();
Dht::init();
Shape::start();
Loop::listen($o['port'], fn($s) => new HttpConn($s));
if (!F('grpc-none')) Loop::listen(F('grpc-port-plus-1') ? $o['port'] + 1 : $o['port'] + 1000, fn($s) => new H2Server($s));
Chain::init();
Peers::start();
Loop::run();
