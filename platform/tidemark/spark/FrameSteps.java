import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Observation;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.CollectMetrics;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Repartition;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.functions;
import scala.collection.immutable.Seq;

/**
 * Several steps on a DataFrame, with the plan that a DataFrame's own methods make, but analysed once, and asked for by one call.
 *
 * <p>Written for the Java of Janino, Spark's own compiler: no type parameters, no lambdas.
 */
public final class FrameSteps {
  private static final String STEP = "\u0001";
  private static final String PART = "\u0000";
  private static final String COLUMN = "\u0002";

  /**
   * The DataFrame after some steps.
   *
   * @param rows before them
   * @param steps separated by STEP; the parts of each by PART: its name, then SQL of columns, or COLUMN and a number in {@code columns}
   * @param columns that have no SQL
   * @param observation of the step "observe", if there is one
   */
  public Object after(Dataset rows, String steps, List columns, Observation observation) {
    SparkSession session = rows.sparkSession();
    LogicalPlan plan = rows.logicalPlan();
    String[] each = steps.split(STEP);
    for (int i = 0; i < each.length; i++) {
      String[] parts = each[i].split(PART);
      if (parts[0].equals("where")) {
        plan = new Filter(session.expression(column(parts[1], columns)), plan);
      } else if (parts[0].equals("select")) {
        plan = new Project(named(session, parts, 1, columns), plan);
      } else if (parts[0].equals("coalesce")) {
        plan = new Repartition(1, false, plan);
      } else if (parts[0].equals("observe")) {
        session.observationManager().register(observation, rows.id());
        plan = new CollectMetrics(observation.name(), named(session, parts, 1, columns), plan, rows.id());
      } else {
        Seq found = named(session, parts, 2, columns);
        plan = new Aggregate((Seq) found.take(Integer.parseInt(parts[1])), found, plan, scala.Option.empty());
      }
    }
    return Dataset.ofRows(session, plan);
  }

  private static Seq named(SparkSession session, String[] parts, int from, List columns) {
    List found = new ArrayList();
    for (int i = from; i < parts.length; i++) {
      found.add(session.toRichColumn(column(parts[i], columns)).named());
    }
    return scala.jdk.javaapi.CollectionConverters.asScala(found).toList();
  }

  private static Column column(String part, List columns) {
    if (part.startsWith(COLUMN)) {
      return (Column) columns.get(Integer.parseInt(part.substring(1)));
    }
    // As SQL a quoted name is a pattern with spark.sql.parser.quotedRegexColumnNames.
    boolean quoted = part.length() > 2 && part.startsWith("`") && part.indexOf('`', 1) == part.length() - 1;
    return quoted ? functions.col(part) : functions.expr(part);
  }
}
