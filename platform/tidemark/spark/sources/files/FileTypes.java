import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.HadoopReadOptions;
import org.apache.parquet.ParquetReadOptions;
import org.apache.parquet.format.converter.ParquetMetadataConverter;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.util.HadoopInputFile;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.Type;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.util.CharVarcharUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.orc.OrcUtils;
import org.apache.spark.sql.execution.datasources.parquet.ParquetToSparkSchemaConverter;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DatetimeType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.FractionalType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * The columns of Parquet and ORC files whose values Spark's readers would change without a word: integers of fewer bits are given what is
 * left of larger ones, and columns of ORC become null.
 *
 * <p>Written for the Java of Janino, Spark's own compiler: no type parameters, no lambdas.
 */
public final class FileTypes {
  private static final String SEPARATOR = "\u0000";
  private static final int THREADS = 16;

  /**
   * The first such column.
   *
   * @param session whose settings are used
   * @param orc whether the files are ORC, and not Parquet
   * @param paths of the files, separated by NUL
   * @param columns that are read, as JSON
   * @return the column, its types in the file and as it is read, and the file, separated by NUL; empty where there is none
   * @throws Exception it was interrupted
   */
  public String misfit(final SparkSession session, final boolean orc, String paths, String columns) throws Exception {
    final StructType declared = (StructType) CharVarcharUtils.replaceCharVarcharWithString((StructType) DataType.fromJson(columns));
    final Configuration settings = session.sessionState().newHadoopConf();
    // Without options each file that is opened reads the settings of Hadoop from their files.
    final ParquetReadOptions options =
        HadoopReadOptions.builder(settings).withMetadataFilter(ParquetMetadataConverter.SKIP_ROW_GROUPS).build();
    String[] each = paths.split(SEPARATOR);
    ExecutorService threads = Executors.newFixedThreadPool(Math.min(THREADS, each.length));
    try {
      List found = new ArrayList();
      for (int i = 0; i < each.length; i++) {
        final String path = each[i];
        found.add(
            threads.submit(
                new Callable() {
                  public Object call() {
                    return FileTypes.inFile(session, settings, orc ? null : options, path, declared);
                  }
                }));
      }
      for (int i = 0; i < found.size(); i++) {
        String misfit = (String) ((Future) found.get(i)).get();
        if (!misfit.isEmpty()) {
          return misfit + SEPARATOR + each[i];
        }
      }
      return "";
    } finally {
      threads.shutdownNow();
    }
  }

  /** The same of one file; without options it is ORC. */
  static String inFile(SparkSession session, Configuration settings, ParquetReadOptions options, String path, StructType declared) {
    boolean orc = options == null;
    StructType types;
    try {
      types = orc ? orcTypes(settings, path) : parquetTypes(session, settings, options, path, declared);
    } catch (Exception damaged) {
      // To read its rows says what is wrong with it.
      return "";
    }
    return among(types, declared, orc, "");
  }

  /** The types of the columns that are read; not of those that Spark has no type for, which it refuses, or does not read. */
  private static StructType parquetTypes(
      SparkSession session, Configuration settings, ParquetReadOptions options, String path, StructType declared) throws Exception {
    StructType found = new StructType();
    ParquetToSparkSchemaConverter converter = new ParquetToSparkSchemaConverter(session.sessionState().conf());
    ParquetFileReader reader = ParquetFileReader.open(HadoopInputFile.fromPath(new Path(path), settings), options);
    try {
      List columns = reader.getFileMetaData().getSchema().getFields();
      for (int i = 0; i < columns.size(); i++) {
        Type column = (Type) columns.get(i);
        for (int k = 0; k < declared.fields().length; k++) {
          if (column.getName().equalsIgnoreCase(declared.fields()[k].name())) {
            try {
              found = found.add(converter.convert(new MessageType("column", Collections.singletonList(column))).fields()[0]);
            } catch (Exception unknown) {
              continue;
            }
          }
        }
      }
      return found;
    } finally {
      reader.close();
    }
  }

  private static StructType orcTypes(Configuration settings, String path) throws Exception {
    org.apache.orc.Reader reader =
        org.apache.orc.OrcFile.createReader(new Path(path), org.apache.orc.OrcFile.readerOptions(settings));
    try {
      return (StructType) CharVarcharUtils.replaceCharVarcharWithString(OrcUtils.toCatalystSchema(reader.getSchema()));
    } finally {
      reader.close();
    }
  }

  private static String among(StructType types, StructType declared, boolean orc, String within) {
    StructField[] fields = declared.fields();
    StructField[] others = types.fields();
    boolean byPlace = orc && within.isEmpty() && named(others, "_col");
    for (int i = 0; i < fields.length; i++) {
      for (int k = 0; k < others.length; k++) {
        if (byPlace ? i == k : others[k].name().equalsIgnoreCase(fields[i].name())) {
          String found = between(others[k].dataType(), fields[i].dataType(), orc, within + fields[i].name());
          if (!found.isEmpty()) {
            return found;
          }
        }
      }
    }
    return "";
  }

  /** Whether all names begin so: Hive wrote columns without names, which Spark takes by their places. */
  private static boolean named(StructField[] fields, String beginning) {
    for (int i = 0; i < fields.length; i++) {
      if (!fields[i].name().startsWith(beginning)) {
        return false;
      }
    }
    return true;
  }

  private static String between(DataType type, DataType declared, boolean orc, String name) {
    if (type instanceof StructType && declared instanceof StructType) {
      return among((StructType) type, (StructType) declared, orc, name + ".");
    }
    if (type instanceof ArrayType && declared instanceof ArrayType) {
      return between(((ArrayType) type).elementType(), ((ArrayType) declared).elementType(), orc, name + ".element");
    }
    if (type instanceof MapType && declared instanceof MapType) {
      String keys = between(((MapType) type).keyType(), ((MapType) declared).keyType(), orc, name + ".key");
      return keys.isEmpty() ? between(((MapType) type).valueType(), ((MapType) declared).valueType(), orc, name + ".value") : keys;
    }
    boolean kept = orc ? keptOfOrc(type, declared) : keptOfParquet(type, declared);
    return kept ? "" : name + SEPARATOR + type.sql() + SEPARATOR + declared.sql();
  }

  /** Whether Spark refuses values or keeps them: it takes the bits of numbers, also of those that are dates and times. */
  private static boolean keptOfParquet(DataType type, DataType declared) {
    if (declared instanceof IntegralType) {
      DataType bits = type;
      if (type instanceof DateType) {
        bits = org.apache.spark.sql.types.IntegerType$.MODULE$;
      } else if (type instanceof DatetimeType) {
        bits = org.apache.spark.sql.types.LongType$.MODULE$;
      }
      return !(bits instanceof IntegralType || bits instanceof DecimalType) || Cast.canUpCast(bits, declared);
    }
    // 32 bits without a sign; others as these it refuses.
    return !(type instanceof LongType && declared instanceof FractionalType && !(declared instanceof DecimalType));
  }

  /** Whether values are kept: others become null, or the nearest that there is. */
  private static boolean keptOfOrc(DataType type, DataType declared) {
    if (type instanceof BinaryType || declared instanceof BinaryType) {
      return declared instanceof BinaryType && (type instanceof BinaryType || type instanceof StringType);
    }
    if (type instanceof BooleanType && declared instanceof IntegralType) {
      return true;
    }
    boolean rounded = type instanceof LongType && declared instanceof DoubleType;
    rounded |= (type instanceof LongType || type instanceof IntegerType) && declared instanceof FloatType;
    return !rounded && Cast.canUpCast(type, declared);
  }
}
