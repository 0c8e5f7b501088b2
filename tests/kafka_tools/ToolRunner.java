import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools one after the other in one JVM, because starting one for each would take most of the time.
 * What a tool leaves to the end of its JVM (the console producer flushes only then) is done after each call.
 *
 * A line of input is a call: the name of the tool's class, its standard input and its arguments, separated by tabs, all but
 * the name in base64. A line of output is what came of it: exit code, standard output and standard error, the latter two in base64.
 */
public class ToolRunner {
    private static final class Exited extends Error {
        final int code;

        Exited(int code) {
            super(null, null, false, false);
            this.code = code;
        }
    }

    private static final List<Runnable> HOOKS = new ArrayList<>();
    private static Integer exitCode;

    public static void main(String[] ignored) throws Exception {
        Exit.setExitProcedure(ToolRunner::exit);
        Exit.setHaltProcedure(ToolRunner::exit);
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        PrintStream answers = System.out;
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in));
        for (String call = calls.readLine(); call != null; call = calls.readLine()) {
            String[] fields = call.split("\t", -1);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setIn(new ByteArrayInputStream(decode(fields[1])));
            System.setOut(new PrintStream(out, true));
            System.setErr(new PrintStream(err, true));
            int code = run(fields);
            HOOKS.forEach(Runnable::run);
            HOOKS.clear();
            System.out.flush();
            System.err.flush();
            answers.println(code + "\t" + encode(out.toByteArray()) + "\t" + encode(err.toByteArray()));
            answers.flush();
        }
    }

    private static int run(String[] fields) throws Exception {
        String[] arguments = new String[fields.length - 2];
        for (int i = 0; i < arguments.length; i++) {
            arguments[i] = new String(decode(fields[i + 2]), "UTF-8");
        }
        exitCode = null;
        try {
            Class.forName(fields[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (exitCode == null) {
                thrown.getCause().printStackTrace();
                return 1;
            }
        }
        return exitCode == null ? 0 : exitCode;
    }

    /** The first code counts: a tool may catch what is thrown here, complain and exit again. */
    private static void exit(int code, String message) {
        if (exitCode == null) {
            exitCode = code;
            if (message != null) {
                System.err.println(message);
            }
            System.setErr(new PrintStream(PrintStream.nullOutputStream()));
        }
        throw new Exited(code);
    }

    private static byte[] decode(String text) {
        return Base64.getDecoder().decode(text);
    }

    private static String encode(byte[] data) {
        return Base64.getEncoder().encodeToString(data);
    }
}
