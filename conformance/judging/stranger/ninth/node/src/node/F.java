package node;

/** The fault that is switched on, if any. */
final class F {
    private static String active = "";

    private F() {}

    static void activate(String id) {
        active = id;
    }

    static boolean on(String id) {
        return active.equals(id);
    }
}
