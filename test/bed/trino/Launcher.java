import io.trino.server.Server;

/** Starts Trino. The distribution's own main class is in none of the published jars. */
public final class Launcher
{
    private Launcher() {}

    public static void main(String[] args)
    {
        new Server() {}.start(args[0]);
    }
}
