// Writes and reads through go-redis' client of a group of servers, for a test that kills their leader.
//
//	group_actor sentinel NAME PORT ...    FailoverClient
//	group_actor cluster - PORT ...        ClusterClient
//
// Each line of the input is `key value`: the actor sets it, reads it back and prints OK, or the error.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"
)

func client(kind, name string, addresses []string) redis.UniversalClient {
	if kind == "cluster" {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses})
	}
	return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: name, SentinelAddrs: addresses})
}

func main() {
	addresses := []string{}
	for _, port := range os.Args[3:] {
		addresses = append(addresses, "127.0.0.1:"+port)
	}
	ctx, group := context.Background(), client(os.Args[1], os.Args[2], addresses)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), " ")
		err := group.Set(ctx, key, value, 0).Err()
		if err == nil {
			var found string
			if found, err = group.Get(ctx, key).Result(); err == nil && found != value {
				err = fmt.Errorf("found %q", found)
			}
		}
		if err != nil {
			fmt.Println("failed:", err)
		} else {
			fmt.Println("OK")
		}
	}
}
