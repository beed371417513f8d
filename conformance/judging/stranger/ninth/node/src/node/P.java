package node;

import java.util.List;

/** Peculiarities: unusual behaviour the interface document permits. */
final class P {
    private static String active = "";

    private P() {}

    static void activate(String id) {
        active = id;
    }

    static boolean on(String id) {
        return active.equals(id);
    }

    static List<String> ids() {
        return Peculiarities.TABLE.lines().filter(l -> l.contains("|")).map(l -> l.split("\\|")[0].trim()).toList();
    }
}
