import java.lang.management.BufferPoolMXBean;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.lang.management.MemoryType;
import java.lang.management.MemoryUsage;
import java.util.HashSet;
import java.util.Iterator;
import java.util.TreeMap;
import org.apache.spark.executor.ExecutorMetrics;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorMetricsUpdate;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerTaskEnd;

/**
 * Counts what the tasks of each executor have used since it was added to a Spark context, and reads this JVM's own memory and collections.
 *
 * <p>All of it is one text, so that Python asks once. Written for the Java of Janino, Spark's own compiler: no type parameters, no lambdas.
 */
public final class ResourceMeter extends SparkListener {
  private static final int COUNTERS = 12;

  /** What an executor last reported of its memory, by Spark's names; the time of its collections is that of its tasks. */
  private static final String[] MEMORY = {
    "JVMHeapMemory", "JVMOffHeapMemory", "DirectPoolMemory", "ProcessTreeJVMRSSMemory", "ProcessTreePythonRSSMemory"
  };

  private final TreeMap counters = new TreeMap();
  private final TreeMap memory = new TreeMap();

  /** The names of executors that are gone, which Spark gives to no other: what comes of them later is not counted. */
  private final HashSet removed = new HashSet();

  public synchronized void onExecutorRemoved(SparkListenerExecutorRemoved event) {
    removed.add(event.executorId());
    counters.remove(event.executorId());
    memory.remove(event.executorId());
  }

  public synchronized void onTaskEnd(SparkListenerTaskEnd event) {
    if (removed.contains(event.taskInfo().executorId())) {
      return;
    }
    long[] sums = (long[]) counters.get(event.taskInfo().executorId());
    if (sums == null) {
      sums = new long[COUNTERS];
      counters.put(event.taskInfo().executorId(), sums);
    }
    sums[0] += 1;
    sums[1] += event.taskInfo().failed() ? 1 : 0;
    TaskMetrics used = event.taskMetrics();
    if (used == null) {
      return;
    }
    sums[2] += used.executorRunTime();
    sums[3] += used.executorCpuTime() / 1000000L;
    sums[4] += used.jvmGCTime();
    sums[5] += used.inputMetrics().bytesRead();
    sums[6] += used.outputMetrics().bytesWritten();
    sums[7] += used.shuffleReadMetrics().totalBytesRead();
    sums[8] += used.shuffleWriteMetrics().bytesWritten();
    sums[9] += used.memoryBytesSpilled();
    sums[10] += used.diskBytesSpilled();
    sums[11] = Math.max(sums[11], used.peakExecutionMemory());
  }

  public synchronized void onExecutorMetricsUpdate(SparkListenerExecutorMetricsUpdate event) {
    scala.collection.Iterator reports = event.executorUpdates().valuesIterator();
    if (!reports.hasNext() || removed.contains(event.execId())) {
      return;
    }
    // One report for each stage at work, all of the same time: the executor's memory is the greatest.
    long[] found = new long[MEMORY.length];
    while (reports.hasNext()) {
      ExecutorMetrics report = (ExecutorMetrics) reports.next();
      for (int number = 0; number < MEMORY.length; number++) {
        found[number] = Math.max(found[number], report.getMetricValue(MEMORY[number]));
      }
    }
    memory.put(event.execId(), found);
  }

  /** Return this JVM's resources and each executor's as JSON. */
  public String sample() {
    StringBuilder text = new StringBuilder();
    text.append("{\"pid\":").append(ManagementFactory.getRuntimeMXBean().getPid());
    appendMemory(text);
    appendCollections(text);
    appendExecutors(text);
    return text.append('}').toString();
  }

  private static void appendMemory(StringBuilder text) {
    MemoryUsage heap = ManagementFactory.getMemoryMXBean().getHeapMemoryUsage();
    text.append(",\"heap_used\":").append(heap.getUsed()).append(",\"heap_max\":").append(heap.getMax());
    text.append(",\"nonheap_used\":").append(ManagementFactory.getMemoryMXBean().getNonHeapMemoryUsage().getUsed());
    Iterator pools = ManagementFactory.getPlatformMXBeans(BufferPoolMXBean.class).iterator();
    while (pools.hasNext()) {
      BufferPoolMXBean pool = (BufferPoolMXBean) pools.next();
      if (pool.getName().equals("direct") || pool.getName().equals("mapped")) {
        text.append(",\"").append(pool.getName()).append("_used\":").append(pool.getMemoryUsed());
      }
    }
    long live = 0;
    boolean known = true;
    Iterator areas = ManagementFactory.getMemoryPoolMXBeans().iterator();
    while (areas.hasNext()) {
      MemoryPoolMXBean area = (MemoryPoolMXBean) areas.next();
      MemoryUsage left = area.getType() == MemoryType.HEAP ? area.getCollectionUsage() : null;
      if (left != null) {
        live += left.getUsed();
        // Objects that are not young are in an area of their own, which is empty until it is collected for the first time.
        known &= left.getUsed() > 0 || area.getName().contains("Eden") || area.getName().contains("Survivor");
      }
    }
    text.append(",\"heap_live\":").append(known ? String.valueOf(live) : "null");
  }

  private static void appendCollections(StringBuilder text) {
    long count = 0;
    long millis = 0;
    Iterator collectors = ManagementFactory.getGarbageCollectorMXBeans().iterator();
    while (collectors.hasNext()) {
      GarbageCollectorMXBean collector = (GarbageCollectorMXBean) collectors.next();
      // Work of G1, ZGC and Shenandoah beside the program is no pause.
      if (!collector.getName().contains("Concurrent") && !collector.getName().endsWith("Cycles")) {
        count += Math.max(0L, collector.getCollectionCount());
        millis += Math.max(0L, collector.getCollectionTime());
      }
    }
    text.append(",\"gc_pauses\":").append(count).append(",\"gc_ms\":").append(millis);
  }

  private synchronized void appendExecutors(StringBuilder text) {
    text.append(",\"executors\":{");
    Iterator names = counters.keySet().iterator();
    while (names.hasNext()) {
      String name = (String) names.next();
      text.append('"').append(name.replaceAll("[^A-Za-z0-9_.-]", "_")).append("\":{\"counters\":");
      append(text, (long[]) counters.get(name));
      text.append(",\"memory\":");
      append(text, (long[]) memory.get(name));
      text.append(names.hasNext() ? "}," : "}");
    }
    text.append('}');
  }

  private static void append(StringBuilder text, long[] numbers) {
    text.append('[');
    for (int number = 0; numbers != null && number < numbers.length; number++) {
      text.append(number == 0 ? "" : ",").append(numbers[number]);
    }
    text.append(']');
  }
}
