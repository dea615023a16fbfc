import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.sync.RedisStringCommands;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.ClusterTopologyRefreshOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.masterreplica.MasterReplica;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.RedisSentinelClient;
import redis.clients.jedis.UnifiedJedis;

/**
 * Writes and reads through the clients of Jedis and Lettuce of a group of servers, for a test that kills their
 * leader.
 *
 * <pre>
 * GroupActor jedis|lettuce sentinel NAME PORT ...
 * GroupActor jedis|lettuce cluster - PORT ...
 * </pre>
 *
 * Each line of the input is {@code key value}: the actor sets it, reads it back and prints OK, or the error.
 */
public final class GroupActor {
    private static final Duration TIMEOUT = Duration.ofSeconds(2);

    private interface Group {
        void set(String key, String value);

        String get(String key);
    }

    private static Group jedis(String kind, String name, Set<HostAndPort> addresses) {
        UnifiedJedis client = kind.equals("cluster")
                ? redis.clients.jedis.RedisClusterClient.builder().nodes(addresses).build()
                : RedisSentinelClient.builder()
                        .masterName(name)
                        .sentinels(addresses)
                        .sentinelClientConfig(DefaultJedisClientConfig.builder().build())
                        .build();
        return new Group() {
            @Override
            public void set(String key, String value) {
                client.set(key, value);
            }

            @Override
            public String get(String key) {
                return client.get(key);
            }
        };
    }

    private static RedisStringCommands<String, String> lettuceCommands(
            String kind, String name, List<String> ports) {
        if (kind.equals("cluster")) {
            var nodes = ports.stream().map(port -> RedisURI.create("127.0.0.1", Integer.parseInt(port))).toList();
            nodes.forEach(node -> node.setTimeout(TIMEOUT));
            var client = RedisClusterClient.create(nodes);
            // Lettuce looks at the nodes again only if it is told to.
            var refresh = ClusterTopologyRefreshOptions.builder().enableAllAdaptiveRefreshTriggers().build();
            client.setOptions(ClusterClientOptions.builder().topologyRefreshOptions(refresh).build());
            return client.connect().sync();
        }
        var sentinels = RedisURI.builder().withSentinelMasterId(name).withTimeout(TIMEOUT);
        ports.forEach(port -> sentinels.withSentinel("127.0.0.1", Integer.parseInt(port)));
        return MasterReplica.connect(RedisClient.create(), StringCodec.UTF8, sentinels.build()).sync();
    }

    private static Group lettuce(String kind, String name, List<String> ports) {
        var commands = lettuceCommands(kind, name, ports);
        return new Group() {
            @Override
            public void set(String key, String value) {
                commands.set(key, value);
            }

            @Override
            public String get(String key) {
                return commands.get(key);
            }
        };
    }

    private static String outcome(Group group, String key, String value) {
        try {
            group.set(key, value);
            String found = group.get(key);
            return value.equals(found) ? "OK" : "failed: found " + found;
        } catch (RuntimeException error) {
            return "failed: " + error.toString().replace('\n', ' ');
        }
    }

    public static void main(String[] arguments) throws IOException {
        String library = arguments[0];
        String kind = arguments[1];
        String name = arguments[2];
        List<String> ports = Stream.of(arguments).skip(3).toList();
        Group group = library.equals("jedis")
                ? jedis(kind, name, ports.stream()
                        .map(port -> new HostAndPort("127.0.0.1", Integer.parseInt(port)))
                        .collect(Collectors.toSet()))
                : lettuce(kind, name, ports);
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", 2);
            System.out.println(outcome(group, words[0], words[1]));
        }
        // The threads of the clients would keep the process alive.
        System.exit(0);
    }
}
