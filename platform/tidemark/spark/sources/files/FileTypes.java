import java.util.ArrayList;
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
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.util.CharVarcharUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.orc.OrcUtils;
import org.apache.spark.sql.execution.datasources.parquet.ParquetToSparkSchemaConverter;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.MapType;
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
      types = orc ? orcTypes(settings, path) : parquetTypes(session, settings, options, path);
    } catch (Exception damaged) {
      // To read its rows says what is wrong with it.
      return "";
    }
    return among(types, declared, orc, "");
  }

  private static StructType parquetTypes(SparkSession session, Configuration settings, ParquetReadOptions options, String path)
      throws Exception {
    ParquetFileReader reader = ParquetFileReader.open(HadoopInputFile.fromPath(new Path(path), settings), options);
    try {
      return new ParquetToSparkSchemaConverter(session.sessionState().conf()).convert(reader.getFileMetaData().getSchema());
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
    for (int i = 0; i < fields.length; i++) {
      for (int k = 0; k < others.length; k++) {
        if (others[k].name().equalsIgnoreCase(fields[i].name())) {
          String found = between(others[k].dataType(), fields[i].dataType(), orc, within + fields[i].name());
          if (!found.isEmpty()) {
            return found;
          }
        }
      }
    }
    return "";
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
    boolean whole = declared instanceof IntegralType && (type instanceof IntegralType || type instanceof DecimalType);
    return (orc || whole) && !Cast.canUpCast(type, declared) ? name + SEPARATOR + type.sql() + SEPARATOR + declared.sql() : "";
  }
}
