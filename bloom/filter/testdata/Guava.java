import com.google.common.hash.BloomFilter;
import com.google.common.hash.Funnel;
import com.google.common.hash.Funnels;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.function.Function;

/** Writes and asks filters of Guava, for tests: java -cp guava.jar Guava.java write|ask FILE FUNNEL [STRATEGY N P], a key a line. */
class Guava {
  public static void main(String[] args) throws Exception {
    switch (args[2]) {
      case "utf8" -> run(args, Funnels.stringFunnel(StandardCharsets.UTF_8), s -> s);
      case "utf16" -> run(args, Funnels.unencodedCharsFunnel(), s -> s);
      case "int" -> run(args, Funnels.integerFunnel(), Integer::valueOf);
      case "long" -> run(args, Funnels.longFunnel(), Long::valueOf);
    }
  }

  static <T, V extends T> void run(String[] args, Funnel<T> funnel, Function<String, V> value) throws Exception {
    var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    if (args[0].equals("ask")) {
      try (var file = new FileInputStream(args[1]); var out = new PrintStream(new BufferedOutputStream(System.out))) {
        var filter = BloomFilter.<T>readFrom(file, funnel);
        for (String line; (line = in.readLine()) != null; ) {
          out.print(filter.mightContain(value.apply(line)) ? "perhaps\n" : "absent\n");
        }
      }
      return;
    }
    var strategies = Class.forName("com.google.common.hash.BloomFilterStrategies");
    var strategy = strategies.getField(args[3]);
    strategy.setAccessible(true);
    var create = BloomFilter.class.getDeclaredMethod("create", Funnel.class, long.class, double.class,
        Class.forName("com.google.common.hash.BloomFilter$Strategy"));
    create.setAccessible(true);
    @SuppressWarnings("unchecked")
    var filter = (BloomFilter<T>) create.invoke(null, funnel, Long.parseLong(args[4]), Double.parseDouble(args[5]), strategy.get(null));
    for (String line; (line = in.readLine()) != null; ) {
      filter.put(value.apply(line));
    }
    try (var out = new FileOutputStream(args[1])) {
      filter.writeTo(out);
    }
  }
}
