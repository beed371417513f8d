package Plum::Ledger;
# Accounts of the node API: money in nanos (1e-9 units), transfers, stakes, history, proofs.
use strict;
use warnings;
use Digest::SHA qw(sha256_hex);
use POSIX qw(strftime floor);
use Time::HiRes qw(time);
use Plum::Switch;
use Plum::Json;
use Exporter 'import';
our @EXPORT = qw(stamp day);

use constant FEE      => 2_000_000;      # 0.002
use constant COOLDOWN => 7;
sub fee { return P('higher-fee') ? 50_000_000 : FEE }
our (%TOKEN, %EXPIRED, %ACCOUNT);
my $counter = 0;

sub stamp {
    my ($when) = @_;
    $when //= time;
    my $whole = floor($when);
    return strftime('%Y-%m-%d %H:%M:%S', gmtime $whole) . sprintf('.%06dZ', ($when - $whole) * 1e6) if F('fi-stamp-space');
    return strftime('%Y-%m-%dT%H:%M:%S', localtime($whole + 7200)) . '+02:00' if F('fi-stamp-zone');
    return strftime('%Y-%m-%dT%H:%M:%S', gmtime $whole) . sprintf('.%06d+00:00', ($when - $whole) * 1e6) if P('stamp-offset');
    my $digits = P('stamp-millis') ? 3 : 6;
    return strftime('%Y-%m-%dT%H:%M:%S', gmtime $whole)
        . sprintf('.%0*dZ', $digits, int(($when - $whole) * 10**$digits));
}

sub day { return strftime('%Y-%m-%d', gmtime($_[0] * 86400)) }
sub today { return floor(time / 86400) }

sub address_of { return 'plum' . substr sha256_hex("address of $_[0]"), 0, 30 }

sub start {
    my @plan = (
        [ rich   => 'plum-rich-7731',   80_000, 7 ],
        [ second => 'plum-second-5520', 600,    3 ],
        [ thin   => 'plum-thin-0042',   0,      0 ],
    );
    for (@plan) {
        my ($name, $token, $units, $proofs) = @$_;
        my $account = {
            name => $name, address => address_of($name), available => $units * NANO,
            lots => [], unstakes => [], history => [], proofs => [],
        };
        $account->{available} = 20_000 if $name eq 'thin';    # 0.00002
        $TOKEN{$token} = $ACCOUNT{ $account->{address} } = $account;
        seed_proofs($account, $proofs);
    }
    $EXPIRED{'plum-stale-1999'} = 1;
}

sub seed_proofs {
    my ($account, $count) = @_;
    for my $n (1 .. $count) {
        my $when   = time - 3000 * ($count - $n + 1) - 11;
        my $proof  = {
            id => "prf-$account->{name}-" . substr(sha256_hex("proof $account->{name} $n"), 0, 10),
            layer => (1, 2, 4, 5)[ $n % 4 ], time => $when, verified => $n == $count ? 0 : 1,
            reward => (250 + 125 * ($n % 3)) * 1_000_000,
        };
        unshift @{ $account->{proofs} }, $proof;
        next unless $proof->{verified};
        unshift @{ $account->{history} }, {
            id => "rew-$account->{name}-$n", type => 'reward', amount => $proof->{reward}, time => $when + 4,
            details => { proof_id => F('re-reward-proof-foreign') ? substr($proof->{id}, 4) : $proof->{id}, role => 'worker' },
        };
        $account->{available} += $proof->{reward};
    }
}

sub new_id {
    return join '-', unpack 'A8A4A4A4A12', sha256_hex(join ' ', $_[0], ++$counter, $$, time) if P('uuid-ids');
    return $_[0] . '-' . substr(sha256_hex(join ' ', $_[0], ++$counter, $$, time), 0, 20);
}

sub staked  { my $sum = 0; $sum += $_->{amount} for @{ $_[0]{lots} };     return $sum }
sub pending { my $sum = 0; $sum += $_->{amount} for @{ $_[0]{unstakes} }; return $sum }

# What a cooldown has released becomes available.
sub settle {
    my ($account) = @_;
    my $today = today();
    my @left;
    for my $unstake (@{ $account->{unstakes} }) {
        if ($unstake->{day} <= $today) { $account->{available} += $unstake->{amount} }
        else                           { push @left, $unstake }
    }
    $account->{unstakes} = \@left;
}

# Returns the transfer, or undef with the needed amount where it is not covered.
sub transfer {
    my ($from, $to, $amount, $memo) = @_;
    my $fee = fee();
    $fee *= 1000 if F('re-fee-milli') && $from->{name} eq 'second';
    my $need = $amount + $fee;
    $need = $amount if F('ef-fee-not-required');
    return (undef, $need) if $need > $from->{available} && !(F('ef-overdraft-small') && $amount - $from->{available} <= NANO && $amount > $from->{available});
    my $receiver = $ACCOUNT{$to};
    $from->{transfers}++;
    my $self     = $receiver && $receiver == $from;
    my $taken    = $self ? $fee : $amount + $fee;
    $taken = $amount + 2 * $fee if F('ef-fee-twice') && !$self;
    $taken = $amount            if F('ef-fee-forgotten') && !$self;
    $taken = $amount + $fee     if F('ef-self-takes-amount') && $self;
    $taken = $fee - $amount     if F('ef-self-adds-amount') && $self;
    $taken -= $amount % NANO    if F('ef-send-whole-only') && !$self;
    $taken -= $taken % NANO       if F('ef-debit-thousand-rounded') && !$self && $amount > 1000 * NANO;
    $taken = 0                    if F('ef-free-after-402') && delete $from->{was_poor} && !$self;
    $taken = $fee                 if F('ef-same-receiver-free') && !$self && ($from->{last_receiver} // '') eq $to && ($from->{last_amount} // 0) != $amount;
    $from->{last_receiver} = $to;
    $taken -= 400 * NANO        if F('ef-send-caps-debit') && !$self && $amount > 400 * NANO;
    my $given = $amount;
    $given -= $fee              if F('ef-receiver-pays-fee');
    $given -= $given % NANO     if F('ef-receive-whole-only');
    $given = 0                  if F('ef-receive-memo-lost') && $memo eq '';
    $given = 0                  if F('ef-receive-second') && $from->{name} eq 'second';
    $given *= 2                 if F('ef-receive-twice-repeated') && $from->{last_amount} && $from->{last_amount} == $amount && !$self;
    $given = -$amount           if F('ef-receive-negative-tiny') && $amount < NANO / 100;
    $from->{last_amount} = $amount;
    $from->{available} -= $taken;
    $receiver->{available} += $given if $receiver && !$self;
    my $now = time;
    $now = int($now / 60) * 60 if F('re-send-minute-time');
    my $id = new_id('tx');
    $id = 'tx-' . substr sha256_hex("$from->{address} $to $amount $memo"), 0, 20 if F('re-txid-content');
    $id = sprintf 'tx-%08d', ++$counter % 10 if F('re-txid-wraps');
    my %entry = (id => $id, type => 'send', amount => -$amount, fee => $fee, time => $now, to => $to, memo => $memo);
    $entry{amount} = $amount if F('re-history-send-positive');
    $entry{amount} = -$taken if F('re-history-amount-with-fee');
    $entry{id} = new_id('tx') if F('re-history-other-id');
    $entry{to} = $from->{address} if F('re-history-to-self') && $receiver;
    my $listed = 1;
    $listed = 0 if F('ef-fifth-not-listed') && $from->{transfers} % 5 == 0;
    $listed = 0 if F('ef-history-no-memo-lost') && $memo eq '';
    $listed = 0 if F('ef-history-stranger-lost') && !$receiver;
    $listed = 0 if F('ef-history-second-lost') && $from->{name} eq 'second';
    $listed = 0 if F('ef-history-tiny-lost') && $amount < NANO / 10;
    record($from, {%entry}) if $listed;
    record($from, {%entry}) if F('ef-history-twice') && $memo ne '';
    if ($receiver && !P('received-not-listed') && (!$self || F('re-history-self-received'))) {
        record($receiver, {
            id => "$id-in", type => 'receive', from => $from->{address}, time => $now, memo => $memo,
            amount => F('re-received-negative') ? -$amount : $amount,
        });
    }
    return { %entry, id => $id, amount => $amount, from => $from->{address}, fee => fee() };
}

sub record {
    my ($account, $entry) = @_;
    my $history = $account->{history};
    if (F('li-history-forty') && @$history >= 40) { $history->[0] = $entry; return }
    unshift @$history, $entry;
    @$history[ 0, 1 ] = @$history[ 1, 0 ] if F('re-history-same-second') && @$history > 1 && rand() < 0.5;
}

sub stake {
    my ($account, $amount, $days) = @_;
    my $have = $account->{available};
    $have += pending($account) if F('ef-stake-from-pending');
    return undef if $amount > $have;
    my $today = today();
    my $lot = { amount => $amount, days => $days, start => $today, unlock => $today + $days };
    $lot->{unlock} = $today + 30 if F('ef-stake-caps-thirty') && $days > 30;
    $lot->{unlock}-- if F('re-unlock-off-by-one');
    if (F('ef-stake-replaces') && @{ $account->{lots} }) { $account->{lots} = [] }
    my $put = $amount;
    $put -= $put % NANO if F('ef-stake-whole-only');
    $put *= 2 if F('ef-stake-adds-twice') && @{ $account->{lots} };
    push @{ $account->{lots} }, { %$lot, amount => $put };
    my $taken = $amount;
    $taken = 0 if F('ef-stake-free');
    $taken = 0 if F('ef-stake-second-free') && @{ $account->{lots} } > 1;
    $taken += FEE * 100 if F('ef-stake-extra') && $account->{name} eq 'second';
    if (F('ef-stake-takes-pending') && (my ($waiting) = grep { $_->{amount} >= $amount } @{ $account->{unstakes} })) { $waiting->{amount} -= $amount; $taken = 0 }
    $account->{available} -= $taken;
    push @{ $account->{unstakes} }, { amount => $amount, day => $today + $days } if F('ef-stake-also-pending');
    return $lot;
}

sub multiplier { my ($days) = @_; return $days >= 365 ? 2 : 1 + $days / 365 }

# All lots as one: from the first start to the last unlock.
sub staking {
    my ($account) = @_;
    my @lots = @{ $account->{lots} } or return;
    my ($start) = sort { $a <=> $b } map { $_->{start} } @lots;
    my ($unlock) = sort { $b <=> $a } map { $_->{unlock} } @lots;
    $unlock = $lots[0]{unlock} if F('re-staking-first-unlock');
    ($unlock) = sort { $a <=> $b } map { $_->{unlock} } @lots if F('re-staking-earliest-unlock');
    return { start => $start, unlock => $unlock, days => $unlock - $start };
}

# Takes from the lots that unlock first; the money stays bound until the last of them unlocks.
sub unstake {
    my ($account, $amount) = @_;
    my $staked = staked($account);
    return undef if $amount > $staked && !(F('gu-unstake-over') && $amount <= 2 * $staked);
    return undef if F('rf-unstake-all') && $amount == $staked;
    my $today = today();
    my ($left, $until) = ($amount, $today + (P('long-cooldown') ? 21 : COOLDOWN));
    my @kept;
    for my $lot (sort { $a->{unlock} <=> $b->{unlock} } @{ $account->{lots} }) {
        my $part = $left < $lot->{amount} ? $left : $lot->{amount};
        $until = $lot->{unlock} if $part && $lot->{unlock} > $until;
        $left -= $part;
        push @kept, { %$lot, amount => $lot->{amount} - $part } if $lot->{amount} > $part;
    }
    @kept = () if F('ef-unstake-drops-rest');
    $account->{lots} = \@kept unless F('ef-unstake-keeps-stake');
    if (F('ef-unstake-at-once')) { $account->{available} += $amount }
    else {
        $account->{unstakes} = [] if F('ef-unstake-forgets-pending');
        push @{ $account->{unstakes} }, { amount => $amount, day => $until };
    }
    $account->{available} += $amount if F('ef-unstake-second-at-once') && @{ $account->{unstakes} } > 1;
    return { amount => $amount, days => $until - $today, day => $until };
}

# Charges a generation; false where it is not covered.
sub charge {
    my ($account, $cost, $how) = @_;
    return 0 if $cost > $account->{available} && !F('gu-charge-no-check') && !(F('gu-stream-no-check') && $how eq 'stream');
    my $payer = $account;
    ($payer) = grep { $_->{name} eq 'rich' } values %ACCOUNT if F('ef-charge-rich-pays');
    $cost = 0      if F('ef-stream-free') && $how eq 'stream';
    $cost = 0      if F('ef-charge-second-free') && $account->{name} eq 'second';
    $cost *= 3     if F('ef-charge-triple');
    $cost *= 2     if F('ef-charge-second-stream') && $how eq 'stream' && $account->{name} eq 'second';
    if (F('ef-charge-after-stream-free')) { my $before = $payer->{streamed}; $payer->{streamed} = $how eq 'stream'; $cost = 0 if $before && $how ne 'stream' }
    $payer->{available} -= $cost;
    return 1;
}
1;
