// Jobs in a stream with two workers. The first takes some and dies; the second takes them over, and does the rest.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/redis/go-redis/v9"
)

const (
	stream, group = "jobs:example", "workers"
	jobs          = 10
)

func main() {
	address := os.Getenv("REDIS_ADDRESS")
	if address == "" {
		address = "127.0.0.1:6379"
	}
	ctx, client := context.Background(), redis.NewClient(&redis.Options{Addr: address})
	check(client.Del(ctx, stream).Err())
	check(client.XGroupCreateMkStream(ctx, stream, group, "$").Err())
	for number := range jobs {
		// When this returns, the job is on disk.
		check(client.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []any{"number", number}}).Err())
	}

	// This worker dies before it has done anything.
	taken := read(ctx, client, "first", 3)
	fmt.Println("left behind:", len(taken))

	done := 0
	for done < jobs {
		// In production MinIdle is longer than any job takes.
		found, _, err := client.XAutoClaim(ctx, &redis.XAutoClaimArgs{
			Stream: stream, Group: group, Consumer: "second", Start: "0", Count: 5,
		}).Result()
		check(err)
		for _, job := range append(found, read(ctx, client, "second", 5)...) {
			check(client.XAck(ctx, stream, group, job.ID).Err())
			done++
		}
	}
	pending, err := client.XPending(ctx, stream, group).Result()
	check(err)
	fmt.Println("done:", done, "pending:", pending.Count)
}

// read takes new jobs, as many as there are up to a count.
func read(ctx context.Context, client *redis.Client, worker string, count int64) []redis.XMessage {
	streams, err := client.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: group, Consumer: worker, Streams: []string{stream, ">"}, Count: count, Block: -1,
	}).Result()
	if err == redis.Nil {
		return nil
	}
	check(err)
	return streams[0].Messages
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
