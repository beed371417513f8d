package Plum::Chain;
# The toy chain: blocks on a timer, accounts in atoms, inference requests with a budget that is locked.
use strict;
use warnings;
use Digest::SHA qw(sha256_hex);
use MIME::Base64 qw(encode_base64 decode_base64);
use Mojo::IOLoop;
use Time::HiRes qw(time);
use Encode ();
use feature 'state';
use Plum::Switch;
use Plum::Json;
use Plum::Keys;
use Plum::Ledger;
use Plum::Node;
use Plum::Text;

use constant { SPACING => 1.5, KEPT => 128 };
our (@blocks, %account, %request, @done, @mempool, @updates, %artifact, %tx_seen);
our ($genesis, $dataset, $training_root, $adapter);
our @validators = map { { owner => Plum::Keys::public("validator $_"), power => 40 - 7 * $_, bond => 25_000_000 - 3_000_000 * $_ } } 0 .. 3;
our %attempt;
our $attempts_left = 48;
my $attempt_number = 0;

sub start {
    my ($now) = (time);
    $dataset = encode_json_({ name => 'grove', vocabulary => int_(scalar @Plum::Text::VOCAB), shards => [ map { { index => int_($_), tokens => shard($_) } } 0 .. 3 ] });
    my $data_digest = sha256_hex($dataset);
    $genesis = encode_json_({
        chain_id => Plum::Keys::CHAIN, genesis_time => '2026-01-05T00:00:00Z', dataset_sha256 => F('re-genesis-digest') ? sha256_hex("$dataset\n") : $data_digest,
        accounts => [ map { { public_key => Plum::Keys::public($_), atoms => '90000000000' } } qw(buyer second archive) ],
        validators => [ map { { owner => $_->{owner}, power => int_($_->{power}) } } @validators ],
    });
    for my $name (qw(buyer second archive provider silent treasury)) {
        $account{ Plum::Keys::public($name) } = { name => $name, available => $name =~ /buyer|second|archive/ ? 90_000_000_000 : 0, locked => 0, nonce => 0 };
    }
    my $loss = 3.118204;
    for my $round (1 .. Plum::Node::ROUND) {
        push @updates, { round => $round, loss => $loss, root => sha256_hex("training root $round"), previous => sha256_hex('training root ' . ($round - 1)) };
        $loss -= 0.064047;
    }
    $training_root = $updates[-1]{root};
    $adapter = join '', map { pack 'f<', sin($_) / 10 } 1 .. 256;
    $artifact{ sha256_hex($_) } = $_ for $adapter, $dataset, $genesis;
    my $first = $now - 60 * SPACING;
    my ($nonce, @plan) = (0, ([ 5, 'provider', 40 ], [ 9, 'provider', 50 ], [ 9, 'silent', 14 ], [ 21, 'provider', 60 ], [ 33, 'provider', 70 ], [ 47, 'provider', 80 ]));
    for my $height (1 .. 60) {
        for my $seed (grep { $_->[0] == $height } @plan) {
            my $body = {
                type => 'inference', buyer => Plum::Keys::public('archive'), chain_id => Plum::Keys::CHAIN, nonce => $nonce, provider => Plum::Keys::public($seed->[1]), checkpoint => Plum::Keys::SERVED,
                prompt => "archived prompt number $nonce from the orchard", max_tokens => 12, price_atoms => Plum::Keys::PRICE, expires_height => $seed->[2],
            };
            $nonce++;
            broadcast(Plum::Keys::envelope('archive', $body, 0));
        }
        make_block($first + $height * SPACING);
    }
    Mojo::IOLoop->recurring(P('fast-blocks') ? 1 : SPACING, sub { make_block(time) });
}

sub shard { my ($index) = @_; return [ map { int_(($_ * 7 + $index * 11) % 40) } 1 .. 24 ] }

sub height { return scalar @blocks }

sub make_block {
    my ($now) = @_;
    my $height = @blocks + 1;
    my $parent = @blocks ? $blocks[-1]{hash} : sha256_hex($genesis);
    my (@txs, @results) = ();
    for my $tx (splice @mempool) {
        push @txs, $tx;
        my $job = $request{ $tx->{request_id} };
        $job->{included} = $height if $job;
        push @results, { code => int_(0), tx_hash => $tx->{hash}, request_id => $tx->{request_id}, gas => int_(21) };
    }
    my $block = {
        height => $height, parent => $parent, time => $now, txs => \@txs, results => \@results,
        hash => uc sha256_hex(join ' ', $height, $parent, $now, map { $_->{hash} } @txs),
    };
    push @blocks, $block;
    if (F('ef-completed-expires')) { for (grep { $_->{state} eq 'completed' && $_->{expires} <= $height } values %request) { $_->{state} = 'expired'; $_->{refund} = { atoms => "$_->{total}", height => int_($height), public_key => $_->{buyer} } } }
    for my $id (sort { $request{$a}{order} <=> $request{$b}{order} } grep { $request{$_}{state} eq 'pending' } keys %request) {
        my $job = $request{$id};
        my $answers = $job->{provider_name} eq 'provider' && $job->{included} && $job->{included} < $height;
        $answers = 1 if F('ef-silent-completed-at-expiry') && $job->{expires} <= $height;
        $answers = 0 if F('ef-never-completed') && $job->{number} > 6;
        if ($answers && ($job->{expires} > $height || F('ef-silent-completed-at-expiry'))) { complete($job, $height) }
        elsif ($job->{expires} <= $height + (F('ef-expires-early') ? 4 : 0) && !(F('ef-never-expires') && $job->{number} > 6)) { expire($job, $height) }
    }
}

sub finish {
    my ($job) = @_;
    push @done, $job->{id};
    my $kept = F('li-kept-four') ? 4 : KEPT;
    delete $request{ shift @done } while @done > $kept;
}

sub complete {
    my ($job, $height) = @_;
    my $payer = $account{ $job->{buyer} };
    $payer->{locked} -= $job->{total} unless F('ef-lock-stays');
    $account{ Plum::Keys::public($job->{provider_name}) }{available} += $job->{price};
    $account{ Plum::Keys::public('treasury') }{available} += $job->{total} - $job->{price};
    $payer->{available} -= $job->{price} if F('ef-paid-twice');
    my $made = Plum::Text::generate($job->{prompt}, { max_tokens => $job->{max_tokens}, temperature => 0, top_k => 1, top_p => 1, stop => [] });
    $job->{state}    = 'completed';
    $job->{response} = { text => $made->{text}, tokens => int_($made->{count}), height => int_($height), serving_root => Plum::Keys::SERVED };
    finish($job);
}

sub expire {
    my ($job, $height) = @_;
    my $payer = $account{ $job->{buyer} };
    $payer->{locked} -= $job->{total};
    $payer->{available} += $job->{total} unless F('ef-no-refund');
    $payer->{available} += $job->{fee} if F('ef-refund-more');
    $job->{state}  = 'expired';
    $job->{refund} = { atoms => "$job->{total}", height => int_($height), public_key => $job->{buyer} };
    finish($job);
}

# Checks a signed transaction and accepts it preliminarily; dies with the reason where it does not.
my $order = 0;

sub broadcast {
    my ($bytes) = @_;
    my $hash  = uc sha256_hex($bytes);
    die "too large\n" if length $bytes > 65_536;
    my $outer = Plum::Json::bare(eval { decode_json_($bytes) } || die "no JSON\n");
    die "no envelope\n" unless ref $outer eq 'HASH' && defined $outer->{payload} && !ref $outer->{payload};
    my $payload = Encode::encode('UTF-8', $outer->{payload});
    my $id = Plum::Keys::request_id($payload);
    if ($request{$id} && F('ef-replay-answers-twice')) { $account{ $request{$id}{buyer} }{available} -= $request{$id}{fee}; return { id => $id, hash => $hash } }
    return { id => $id, hash => $hash } if $request{$id} && P('replay-is-ok');
    die "the signature is not that of the payload\n" unless F('gu-forged-request') || Plum::Keys::verify($outer->{public_key}, $payload, $outer->{signature});
    my $body = Plum::Json::bare(eval { decode_json_($payload) } || die "no JSON\n");
    die "no inference request\n" unless ref $body eq 'HASH' && ($body->{type} // '') eq 'inference';
    for my $key (qw(nonce max_tokens price_atoms expires_height)) {
        die "$key is no whole number\n" unless defined $body->{$key} && $body->{$key} =~ /^\d{1,15}$/;
    }
    die "prompt is no text\n" unless defined $body->{prompt} && !ref $body->{prompt} && length $body->{prompt} <= 8_000;
    die "another chain\n" unless F('gu-other-chain') || ($body->{chain_id} // '') eq Plum::Keys::CHAIN;
    die "buyer is not the key that has signed\n" unless ($body->{buyer} // '') eq ($outer->{public_key} // '');
    my $payer = $account{ $outer->{public_key} } or die "the account has nothing\n";
    die "nonce is not $payer->{nonce}\n" if $body->{nonce} != $payer->{nonce};
    die "expires_height has passed\n" if $body->{expires_height} <= @blocks && !F('gu-expired-request');
    my ($provider) = grep { Plum::Keys::public($_) eq ($body->{provider} // '') } qw(provider silent);
    die "unknown provider\n" unless $provider;
    die "another checkpoint is served\n" unless ($body->{checkpoint} // '') eq Plum::Keys::SERVED;
    die "the price is " . Plum::Keys::PRICE . "\n" unless $body->{price_atoms} == Plum::Keys::PRICE;
    my $total = Plum::Keys::PRICE + Plum::Keys::FEE;
    die "the budget is not available\n" if $payer->{available} < $total;
    my $who = $outer->{public_key};
    $who = Plum::Keys::public('buyer') if F('ef-request-first-pays') && $payer->{name} eq 'second';
    my $paying = $account{$who};
    $payer->{nonce}++ unless F('ef-nonce-stays') && $payer->{name} ne 'archive';
    my $bound = F('ef-lock-double') && $payer->{name} ne 'archive' ? 2 * $total : $total;
    if (!(F('ef-nothing-locked') && $payer->{name} ne 'archive')) { $paying->{available} -= $bound; $paying->{locked} += $total }
    $request{$id} = {
        id => $id, order => ++$order, number => $order, state => 'pending', buyer => $who, provider_name => $provider, prompt => $body->{prompt}, max_tokens => $body->{max_tokens},
        expires => F('gu-expired-request') && $body->{expires_height} <= @blocks ? @blocks + 20 : $body->{expires_height}, price => Plum::Keys::PRICE, fee => Plum::Keys::FEE, total => F("ef-nothing-locked") && $payer->{name} ne "archive" ? 0 : $total, hash => $hash, submitted => scalar @blocks,
    };
    push @mempool, { hash => $hash, request_id => $id, body => $body, public_key => $outer->{public_key}, bytes => $bytes };
    return { id => $id, hash => $hash };
}

# Views (interface 2.2) -----------------------------------------------------------
sub network_view {
    my $block = $blocks[-1];
    my $named = F('re-network-older-hash') && @blocks > 1 ? $blocks[-2] : $block;
    my $supply = 0;
    $supply += $_->{available} + $_->{locked} for values %account;
    $supply += $_->{bond} for @validators;
    return {
        chain_id => Plum::Keys::CHAIN, genesis_hash => sha256_hex($genesis), version => '0.4.0', ready => bool(1),
        block => { height => int_($block->{height}), hash => $named->{hash} }, height => int_(@blocks), training_round => int_(Plum::Node::ROUND - (F('re-network-round-behind') ? 1 : 0)),
        supply_atoms => F('fi-supply-units') ? num($supply / 1e6) : "$supply",
    };
}

sub block_view {
    my ($block, $single) = @_;
    my $view = {
        height => int_($block->{height}), hash => $block->{hash}, parent_hash => $block->{parent}, time => stamp($block->{time}),
        transaction_count => int_(scalar @{ $block->{txs} }), results => $block->{results},
    };
    if (!$single) {
        $view->{hash} = lc $view->{hash} if F('re-list-hash-lower');
        $view->{results} = undef if F('fi-list-results-null');
        return $view;
    }
    $view->{transactions} = [ map { tx_view($_) } @{ $block->{txs} } ];
    $view->{height} = int_($block->{height} + 1) if F('re-block-height-plus-one');
    return $view;
}

sub tx_view {
    my ($tx) = @_;
    my $body = $tx->{body};
    my %view = (
        tx_hash => F('re-tx-hash-is-id') ? $tx->{request_id} : $tx->{hash}, request_id => $tx->{request_id}, type => 'inference', signer => $tx->{public_key}, chain_id => $body->{chain_id},
        nonce => int_($body->{nonce}), provider => $body->{provider}, checkpoint => $body->{checkpoint}, max_tokens => int_($body->{max_tokens}),
        price_atoms => "$body->{price_atoms}", fee_atoms => Plum::Keys::FEE . '', expires_height => int_($body->{expires_height}),
    );
    $view{prompt} = F('re-block-prompt-cut') ? substr($body->{prompt}, 0, 10) : $body->{prompt} unless F('fi-block-prompt-missing');
    return \%view;
}

sub account_view {
    my ($public) = @_;
    my $account = $account{$public} || { available => 0, locked => 0, nonce => 0 };
    my ($available, $locked) = @$account{qw(available locked)};
    my $total = $available + $locked;
    $locked = Plum::Keys::PRICE + Plum::Keys::FEE if F('re-locked-latest') && $locked > Plum::Keys::PRICE + Plum::Keys::FEE;
    my $atoms = sub { F('fi-atoms-number') ? int_($_[0]) : F('fi-atoms-decimal') ? sprintf('%.2f', $_[0]) : "$_[0]" };
    return {
        public_key => $public, available_atoms => $atoms->($available), locked_atoms => $atoms->($locked), total_atoms => $atoms->($total),
        next_nonce => int_($account->{nonce} - (F('fi-nonce-below') && !$account->{nonce} ? 1 : 0)),
    };
}

sub request_view {
    my ($job) = @_;
    my $view = {
        request_id => $job->{id}, state => $job->{state}, prompt => F('re-record-prompt-cut') ? substr($job->{prompt}, 0, 24) : $job->{prompt}, max_tokens => int_($job->{max_tokens}),
        buyer => $job->{buyer}, provider => Plum::Keys::public($job->{provider_name}), price_atoms => "$job->{price}", fee_atoms => "$job->{fee}", tx_hash => F('re-record-hash-is-id') ? $job->{id} : $job->{hash},
        expires_height => int_($job->{expires}), included_height => $job->{included} ? int_($job->{included}) : undef,
    };
    if ($job->{state} eq 'completed') {
        $view->{response} = { %{ $job->{response} } };
        $view->{response}{text} .= ' ' x (time % 3) . '.' if F('re-response-changes');
        $view->{response} = undef if F('fi-response-null');
    }
    if ($job->{state} eq 'expired') { $view->{refund} = $job->{refund} unless F('fi-refund-missing') }
    return $view;
}

sub queue_length { return scalar grep { $_->{state} eq 'pending' } values %request }

sub loss_text { my $text = sprintf '%.6f', $_[0]; return F('re-loss-rounded') && $_[1] ? sprintf '%.2f', $_[0] : $text }

sub update_view {
    my ($update) = @_;
    return {
        round => int_($update->{round}), loss => loss_text($update->{loss}, 1), root => $update->{root}, previous_root => $update->{previous},
        height => int_(4 * $update->{round}),
    };
}

# Entries below a bound, newest first: (list of entries, key, limit, before).
sub page {
    my ($all, $key, $limit, $before) = @_;
    my @list = reverse @$all;
    return () if F('li-before-ten') && defined $before && $before <= 10;
    @list = grep { $_->{$key} < $before || F('li-before-inclusive-twice') && $_->{$key} <= $before + 1 } @list if defined $before && !F('li-before-ignored');
    @list = reverse @list if F('li-page-oldest') && !defined $before;
    @list = grep { $_->{$key} % 5 } @list if F('li-every-fifth-missing') && $limit > 10;
    splice @list, 1, 1 if F('li-page-gap') && @list > 3 && defined $before;
    my $size = $limit + (F('li-native-page-more') ? 1 : 0);
    splice @list, $size if @list > $size;
    push @list, $list[-1] if F('li-last-twice') && @list > 1 && $limit < 10;
    return @list;
}

sub poll_work {
    return undef if P('no-work') || $attempts_left <= 0;
    $attempts_left--;
    my $id = sprintf 'att-%06d', ++$attempt_number;
    $attempt{$id} = 'open';
    return { attempt => $id, stage => 'adapter', round => int_(Plum::Node::ROUND + 1), root => $training_root };
}
1;
