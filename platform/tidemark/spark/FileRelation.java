import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.errors.QueryCompilationErrors;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.InMemoryFileIndex;
import org.apache.spark.sql.execution.datasources.NoopCache$;
import org.apache.spark.sql.execution.datasources.json.JsonFileFormat;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * A DataFrame over files of known columns, without what Spark's reader does first: it looks for patterns in paths, for tables and
 * sources of that name, for folders, and for columns.
 *
 * <p>Written for the Java of Janino, Spark's own compiler: no type parameters, no lambdas.
 */
public final class FileRelation {
  private static final String SEPARATOR = "\u0000";

  /**
   * The rows of files.
   *
   * @param session that reads them
   * @param json whether they are JSON, and not Parquet
   * @param paths of the files, separated by NUL, each once
   * @param columns as JSON
   * @param options names and values of the reader's, separated by NUL
   * @throws Exception Spark's for a path that does not exist, where a file is missing
   */
  public Object read(SparkSession session, boolean json, String paths, String columns, String options) throws Exception {
    String[] each = paths.split(SEPARATOR);
    List listed = new ArrayList();
    for (int i = 0; i < each.length; i++) {
      listed.add(new Path(each[i]));
    }
    StructType schema = (StructType) DataType.fromJson(columns);
    scala.collection.immutable.Map settings = settings(options);
    InMemoryFileIndex index =
        new InMemoryFileIndex(
            session,
            scala.jdk.javaapi.CollectionConverters.asScala(listed).toList(),
            settings,
            new scala.Some(schema),
            NoopCache$.MODULE$,
            scala.Option.empty(),
            scala.Option.empty());
    // It leaves out what is not there.
    if (index.allFiles().size() != each.length) {
      throw missing(session, listed);
    }
    FileFormat format = json ? (FileFormat) new JsonFileFormat() : (FileFormat) new ParquetFileFormat();
    HadoopFsRelation relation =
        new HadoopFsRelation(index, index.partitionSchema(), schema.asNullable(), scala.Option.empty(), format, settings, session);
    return session.baseRelationToDataFrame(relation);
  }

  private static scala.collection.immutable.Map settings(String options) {
    scala.collection.immutable.Map found = scala.collection.immutable.Map$.MODULE$.empty();
    String[] each = options.split(SEPARATOR);
    for (int i = 0; i + 1 < each.length; i += 2) {
      found = (scala.collection.immutable.Map) found.updated(each[i], each[i + 1]);
    }
    return org.apache.spark.sql.catalyst.util.CaseInsensitiveMap$.MODULE$.apply(found);
  }

  private static Exception missing(SparkSession session, List paths) throws Exception {
    for (int i = 0; i < paths.size(); i++) {
      Path path = (Path) paths.get(i);
      if (!path.getFileSystem(session.sessionState().newHadoopConf()).exists(path)) {
        return (Exception) QueryCompilationErrors.dataPathNotExistError(path.toString());
      }
    }
    return new IllegalStateException("of " + paths.size() + " files not all are listed: " + paths);
  }
}
