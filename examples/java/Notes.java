import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.regex.Pattern;

/** Documents over HTTP: a note is written, edited by two people at once, and read from the feed of changes. */
class Notes {
    static final String SERVER = System.getenv().getOrDefault("HTTP_URL", "http://127.0.0.1:5984");
    static final HttpClient CLIENT = HttpClient.newHttpClient();

    record Answer(int status, String body) {
        String field(String name) {
            var found = Pattern.compile("\"" + name + "\":\"([^\"]*)\"").matcher(body);
            if (!found.find()) throw new IllegalStateException(name + " is not in " + body);
            return found.group(1);
        }
    }

    static Answer send(String method, String path, String body) throws Exception {
        var publisher = body == null ? BodyPublishers.noBody() : BodyPublishers.ofString(body);
        var request = HttpRequest.newBuilder(URI.create(SERVER + path)).method(method, publisher)
                .header("Content-Type", "application/json").build();
        var response = CLIENT.send(request, BodyHandlers.ofString());
        return new Answer(response.statusCode(), response.body());
    }

    public static void main(String[] arguments) throws Exception {
        send("DELETE", "/java-notes", null);
        send("PUT", "/java-notes", null);
        // 201: the document is on disk.
        var first = send("PUT", "/java-notes/shopping", "{\"text\": \"tea\"}").field("rev");
        var mine = send("PUT", "/java-notes/shopping?rev=" + first, "{\"text\": \"tea, milk\"}");
        var yours = send("PUT", "/java-notes/shopping?rev=" + first, "{\"text\": \"tea, bread\"}");
        System.out.println("mine " + mine.status() + ", yours " + yours.status() + " " + yours.field("error"));
        var changes = send("GET", "/java-notes/_changes?include_docs=true", null);
        System.out.println(changes.field("text"));
    }
}
