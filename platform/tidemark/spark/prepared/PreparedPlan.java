import java.io.FileOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.UUID;
import org.apache.hadoop.fs.Path;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.MonotonicallyIncreasingID;
import org.apache.spark.sql.catalyst.expressions.Nondeterministic;
import org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.CollectMetricsExec;
import org.apache.spark.sql.execution.CollectMetricsExec$;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.SQLExecution$;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.InMemoryFileIndex;
import org.apache.spark.sql.execution.datasources.NoopCache$;
import org.apache.spark.sql.types.DatetimeType;
import org.apache.spark.sql.types.StringType;

/**
 * The physical plan of a DataFrame that reads nothing but files, and is run again over other files and with other numbers.
 *
 * <p>Files are passed as one text: those of each scan, in the order of the plan's leaves, separated by NUL, and the scans by SOH.
 * Numbers are, too: each number in the plan, and the one that replaces it, separated by NUL.
 *
 * <p>Written for the Java of Janino, Spark's own compiler: no type parameters, no lambdas.
 */
public final class PreparedPlan {
  private static final String SEPARATOR = "\u0000";
  private static final String SCAN_SEPARATOR = "\u0001";

  /** The driver holds all rows; a batch has up to 10,000. */
  private static final int MOST_BATCHES = 64;

  private final Dataset made;
  private final SparkPlan plan;
  private final List relations;

  /** The plan of the newest ``rows``, which has their observations. */
  private SparkPlan newest;

  /**
   * Whose plan is kept. One of another shape, or whose rows differ each time, is refused by an IllegalArgumentException.
   *
   * @param several whether it may run in several tasks; then it can only make ``rows``
   */
  public PreparedPlan(Dataset made, boolean several) {
    this.made = made;
    requireSameRows(made.queryExecution().analyzed());
    this.plan = made.queryExecution().executedPlan();
    this.relations = relationsOf(plan, several);
  }

  /** The rows of the plan as a DataFrame that is hardly planned: to be written by several tasks. ``observed`` is called behind that. */
  public Dataset rows(String paths, String numbers) {
    scala.Option before = activate();
    try {
      newest = bind(paths, numbers);
      Object computed = SQLExecution$.MODULE$.withSQLConfPropagated(made.sparkSession(), new Computed(newest));
      return ((SparkSession) made.sparkSession()).internalCreateDataFrame((RDD) computed, made.schema(), false);
    } finally {
      restore(before);
    }
  }

  /** The names of the observations of the newest ``rows``, which were written, each followed by its row of values; asked for once. */
  public Object[] observed() {
    Object[] found = observed(newest);
    // It holds on to what it shuffled.
    newest = null;
    return found;
  }

  /** Whether a DataFrame's plan is this one, bound to the files and numbers. */
  public boolean equalTo(Dataset other, String paths, String numbers) {
    scala.Option before = activate();
    try {
      return unnamed(bind(paths, numbers)).sameResult(unnamed(other.queryExecution().executedPlan()));
    } finally {
      restore(before);
    }
  }

  /**
   * Run the plan in one Spark job, and write its rows to a local file as record batches of Arrow, one after the other.
   *
   * @return the names of observations, each followed by its row of values
   */
  public Object[] run(String paths, String numbers, String file) throws IOException {
    scala.Option before = activate();
    try {
      SparkPlan bound = bind(paths, numbers);
      // With the session's settings in the task, as in that of any query.
      byte[][] batches = (byte[][]) SQLExecution$.MODULE$.withSQLConfPropagated(made.sparkSession(), new Batches(made, bound));
      if (batches.length > MOST_BATCHES) {
        throw new IllegalStateException("the pass has more than " + MOST_BATCHES + " batches of rows");
      }
      write(batches, file);
      return observed(bound);
    } finally {
      restore(before);
    }
  }

  /** Make the session that of this thread, which nodes of a plan take theirs from; returns the one before. */
  private scala.Option activate() {
    scala.Option before = SparkSession.getActiveSession();
    SparkSession.setActiveSession(made.sparkSession());
    return before;
  }

  private static void restore(scala.Option session) {
    if (session.isDefined()) {
      SparkSession.setActiveSession((org.apache.spark.sql.SparkSession) session.get());
    } else {
      SparkSession.clearActiveSession();
    }
  }

  private static void write(byte[][] batches, String file) throws IOException {
    FileOutputStream out = new FileOutputStream(file);
    try {
      for (int i = 0; i < batches.length; i++) {
        out.write(batches[i]);
      }
    } finally {
      out.close();
    }
  }

  private static Object[] observed(SparkPlan ran) {
    List found = new ArrayList();
    scala.collection.Iterator each = CollectMetricsExec$.MODULE$.collect(ran).iterator();
    while (each.hasNext()) {
      scala.Tuple2 pair = (scala.Tuple2) each.next();
      found.add(pair._1());
      found.add(pair._2());
    }
    return found.toArray();
  }

  private SparkPlan bind(String paths, String numbers) {
    SparkPlan read = (SparkPlan) plan.transformUp(new Scans(over(paths)));
    return numbers.isEmpty() ? read : (SparkPlan) read.transformAllExpressions(new Numbers(numbers));
  }

  private List over(String paths) {
    String[] scans = paths.split(SCAN_SEPARATOR);
    if (scans.length != relations.size()) {
      throw new IllegalArgumentException("the plan has " + relations.size() + " scans, and there are files of " + scans.length);
    }
    List bound = new ArrayList();
    for (int i = 0; i < scans.length; i++) {
      bound.add(over((HadoopFsRelation) relations.get(i), scans[i]));
    }
    return bound;
  }

  private HadoopFsRelation over(HadoopFsRelation relation, String paths) {
    List listed = new ArrayList();
    String[] each = paths.split(SEPARATOR);
    for (int i = 0; i < each.length; i++) {
      listed.add(new Path(each[i]));
    }
    SparkSession session = made.sparkSession();
    // Its partitions have the types of the plan, not those that the values in the names of folders look like.
    InMemoryFileIndex index =
        new InMemoryFileIndex(
            session,
            scala.jdk.javaapi.CollectionConverters.asScala(listed).toList(),
            relation.options(),
            new scala.Some(relation.schema()),
            NoopCache$.MODULE$,
            scala.Option.empty(),
            scala.Option.empty());
    // It leaves out what is not there.
    if (index.allFiles().size() != each.length) {
      throw new IllegalStateException("of " + each.length + " files, " + index.allFiles().size() + " are there");
    }
    return unnamed(relation, index);
  }

  /** A relation without the reader's option of a single path. */
  private static HadoopFsRelation unnamed(HadoopFsRelation relation, FileIndex index) {
    return new HadoopFsRelation(
        index,
        relation.partitionSchema(),
        relation.dataSchema(),
        relation.bucketSpec(),
        relation.fileFormat(),
        (scala.collection.immutable.Map) relation.options().removed("path"),
        relation.sparkSession());
  }

  private static List relationsOf(SparkPlan plan, boolean several) {
    List found = new ArrayList();
    Iterator leaves = scala.jdk.javaapi.CollectionConverters.asJava(plan.collectLeaves()).iterator();
    while (leaves.hasNext()) {
      Object leaf = leaves.next();
      if (!(leaf instanceof FileSourceScanExec)) {
        throw new IllegalArgumentException("the plan does not read files alone: " + ((SparkPlan) leaf).nodeName());
      }
      found.add(((FileSourceScanExec) leaf).relation());
    }
    if (!several && plan.outputPartitioning().numPartitions() != 1) {
      throw new IllegalArgumentException("the plan runs in several tasks");
    }
    return found;
  }

  private static void requireSameRows(LogicalPlan plan) {
    Varying varying = new Varying();
    plan.transformAllExpressions(varying);
    if (varying.found != null) {
      throw new IllegalArgumentException("each run has other values of " + varying.found);
    }
    if (plan.containsPattern(TreePattern.CURRENT_LIKE())) {
      throw new IllegalArgumentException("the plan asks for the time");
    }
  }

  /** Names of observations differ between DataFrames, as do ids; those of aggregates' results are not made equal by Spark. */
  private static SparkPlan unnamed(SparkPlan plan) {
    ResultIds ids = new ResultIds();
    plan.transformAllExpressions(ids);
    ids.replaces = true;
    return (SparkPlan) ((SparkPlan) plan.transformUp(new Unnamed())).transformAllExpressions(ids);
  }

  private static TreeNode copy(TreeNode node, Object old, Object replacement) {
    Object[] parts = new Object[node.productArity()];
    for (int i = 0; i < parts.length; i++) {
      parts[i] = node.productElement(i);
      if (parts[i] == old) {
        parts[i] = replacement;
      }
    }
    return node.makeCopy(parts);
  }

  /** Replaces the relations of scans, which it meets in the order of the plan's leaves. */
  private static final class Scans extends scala.runtime.AbstractPartialFunction {
    private final Iterator relations;

    Scans(List relations) {
      this.relations = relations.iterator();
    }

    public boolean isDefinedAt(Object node) {
      return node instanceof FileSourceScanExec;
    }

    public Object applyOrElse(Object node, scala.Function1 other) {
      if (!isDefinedAt(node)) {
        return other.apply(node);
      }
      return copy((TreeNode) node, ((FileSourceScanExec) node).relation(), relations.next());
    }
  }

  /** Runs a plan, up to one batch too many. */
  private static final class Batches extends scala.runtime.AbstractFunction0 {
    private final Dataset made;
    private final SparkPlan bound;

    Batches(Dataset made, SparkPlan bound) {
      this.made = made;
      this.bound = bound;
    }

    public Object apply() {
      // A join may make many rows of few; the task stops at the first one too many.
      return made.toArrowBatchRdd(bound).take(MOST_BATCHES + 1);
    }
  }

  /** Makes the RDD of a plan. */
  private static final class Computed extends scala.runtime.AbstractFunction0 {
    private final SparkPlan bound;

    Computed(SparkPlan bound) {
      this.bound = bound;
    }

    public Object apply() {
      return bound.execute();
    }
  }

  private static final class Unnamed extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      return node instanceof CollectMetricsExec || node instanceof FileSourceScanExec;
    }

    public Object applyOrElse(Object node, scala.Function1 other) {
      if (node instanceof CollectMetricsExec) {
        return copy((TreeNode) node, ((CollectMetricsExec) node).name(), "observed");
      }
      if (node instanceof FileSourceScanExec) {
        HadoopFsRelation relation = ((FileSourceScanExec) node).relation();
        return copy((TreeNode) node, relation, unnamed(relation, relation.location()));
      }
      return other.apply(node);
    }
  }

  /** Collects the ids of aggregates' results, then replaces them by numbers in the order of the plan. */
  private static final class ResultIds extends scala.runtime.AbstractPartialFunction {
    private final Map ids = new HashMap();
    private boolean replaces;

    public boolean isDefinedAt(Object expression) {
      if (!replaces) {
        if (expression instanceof AggregateExpression) {
          ExprId found = ((AggregateExpression) expression).resultId();
          if (!ids.containsKey(found)) {
            ids.put(found, new ExprId(-1L - ids.size(), new UUID(0L, 0L)));
          }
        }
        return false;
      }
      return expression instanceof AggregateExpression
          || (expression instanceof AttributeReference && ids.containsKey(((AttributeReference) expression).exprId()));
    }

    public Object applyOrElse(Object expression, scala.Function1 other) {
      if (!isDefinedAt(expression)) {
        return other.apply(expression);
      }
      if (expression instanceof AttributeReference) {
        AttributeReference found = (AttributeReference) expression;
        return found.withExprId((ExprId) ids.get(found.exprId()));
      }
      AggregateExpression found = (AggregateExpression) expression;
      return found.copy(found.aggregateFunction(), found.mode(), found.isDistinct(), found.filter(), (ExprId) ids.get(found.resultId()));
    }
  }

  /** Finds an expression with other values each time; numbers of rows begin anew in each run. */
  private static final class Varying extends scala.runtime.AbstractPartialFunction {
    private static final List TIMES = Arrays.asList("now", "today", "tomorrow", "yesterday");

    private Expression found;

    public boolean isDefinedAt(Object expression) {
      boolean varies = expression instanceof Nondeterministic && !(expression instanceof MonotonicallyIncreasingID);
      // Functions such as to_date stand for a cast.
      boolean stands = expression instanceof RuntimeReplaceable;
      Object meant = stands ? ((RuntimeReplaceable) expression).replacement() : expression;
      if (found == null && (varies || (meant instanceof Cast && namesTheTime((Cast) meant)))) {
        found = (Expression) expression;
      }
      return false;
    }

    /** Whether a text becomes the day or the time that it is when the plan is made. */
    private static boolean namesTheTime(Cast cast) {
      Expression child = cast.child();
      if (!(cast.dataType() instanceof DatetimeType) || !(child.dataType() instanceof StringType) || !child.foldable()) {
        return false;
      }
      Object text = child.eval(null);
      // A time zone may follow.
      return text != null && TIMES.contains(text.toString().trim().toLowerCase(Locale.ROOT).split("\\P{Alpha}", 2)[0]);
    }

    public Object applyOrElse(Object expression, scala.Function1 other) {
      isDefinedAt(expression);
      return other.apply(expression);
    }
  }

  /** Replaces literals, also those in an array, which is how numbers that change stay out of compiled code. */
  private static final class Numbers extends scala.runtime.AbstractPartialFunction {
    private final Map numbers = new HashMap();

    Numbers(String pairs) {
      String[] each = pairs.split(SEPARATOR);
      for (int i = 0; i < each.length; i += 2) {
        numbers.put(Long.valueOf(each[i]), Long.valueOf(each[i + 1]));
      }
    }

    public boolean isDefinedAt(Object expression) {
      return replacement(expression) != null;
    }

    public Object applyOrElse(Object expression, scala.Function1 other) {
      Object found = replacement(expression);
      return found == null ? other.apply(expression) : found;
    }

    private Object replacement(Object expression) {
      if (!(expression instanceof Literal)) {
        return null;
      }
      Literal literal = (Literal) expression;
      Object found = numbers.get(literal.value());
      if (found == null && literal.value() instanceof ArrayData) {
        found = inArray(((ArrayData) literal.value()).array());
      }
      return found == null ? null : new Literal(found, literal.dataType());
    }

    private ArrayData inArray(Object[] items) {
      Object[] replaced = Arrays.copyOf(items, items.length);
      boolean any = false;
      for (int i = 0; i < items.length; i++) {
        Object found = numbers.get(items[i]);
        if (found != null) {
          replaced[i] = found;
          any = true;
        }
      }
      return any ? new GenericArrayData(replaced) : null;
    }
  }
}
