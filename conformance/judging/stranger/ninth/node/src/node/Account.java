package node;

import com.google.gson.JsonObject;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.List;

/** A wallet account; amounts are in millionths of the currency. */
final class Account {
    final String token;
    final String address;
    long available;
    long staked;
    long pending;
    int durationDays;
    LocalDate start;
    LocalDate unlock;
    double multiplier = 1.0;
    /** Oldest first. */
    final List<JsonObject> history = new ArrayList<>();
    /** Start times of recent inference calls, for the rate limit. */
    final java.util.ArrayDeque<Long> calls = new java.util.ArrayDeque<>();

    Account(String token, String address, long available, long staked, int days, LocalDate start) {
        this.token = token;
        this.address = address;
        this.available = available;
        this.staked = staked;
        this.durationDays = days;
        this.start = start;
        this.unlock = start.plusDays(days);
        this.multiplier = Wallet.multiplier(days);
    }

    long total() {
        return available + staked + pending;
    }
}
