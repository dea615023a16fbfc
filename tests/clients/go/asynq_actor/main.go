// A producer or a worker of asynq, as a process (its output: harness/job_storm.py).
//
//	asynq_actor PORT produce FIRST END STEP
//	asynq_actor PORT work PLACES
//
// Some jobs are scheduled for a little later, some fail the first time.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
)

const (
	kind         = "count"
	addingAtOnce = 16
	delay        = 50 * time.Millisecond
	// The interval of checking scheduled jobs, and of retries while the server is unavailable.
	interval = 200 * time.Millisecond
	// The retention of completed jobs.
	retention = time.Hour
	// Each kill may hit the same job.
	retries = 10
)

// say writes a line without buffering: it must have left this process before it is killed.
func say(what ...any) {
	fmt.Fprintln(os.Stdout, what...)
}

func main() {
	port, role := os.Args[1], os.Args[2]
	numbers := make([]int, 0, 3)
	for _, argument := range os.Args[3:] {
		number, err := strconv.Atoi(argument)
		if err != nil {
			log.Fatal(err)
		}
		numbers = append(numbers, number)
	}
	// asynq's documentation uses this database, and many applications give it one of its own.
	server := asynq.RedisClientOpt{Addr: "127.0.0.1:" + port, DB: 14}
	switch role {
	case "produce":
		produce(server, numbers[0], numbers[1], numbers[2])
	case "work":
		work(server, numbers[0])
	default:
		log.Fatalf("no role %q", role)
	}
}

func produce(server asynq.RedisClientOpt, first, end, step int) {
	client := asynq.NewClient(server)
	defer client.Close()
	numbers := make(chan int)
	var adding sync.WaitGroup
	for range addingAtOnce {
		adding.Go(func() {
			for number := range numbers {
				add(client, number)
			}
		})
	}
	for number := first; number < end; number += step {
		numbers <- number
	}
	close(numbers)
	adding.Wait()
}

// add retries until the job is accepted. With an id chosen by the application, adding a job again is refused.
func add(client *asynq.Client, number int) {
	options := []asynq.Option{
		asynq.TaskID(fmt.Sprintf("job-%d", number)),
		asynq.MaxRetry(retries),
		asynq.Retention(retention),
	}
	if number%10 == 1 {
		options = append(options, asynq.ProcessIn(delay))
	}
	task := asynq.NewTask(kind, []byte(strconv.Itoa(number)))
	for {
		_, err := client.Enqueue(task, options...)
		if err == nil || errors.Is(err, asynq.ErrTaskIDConflict) {
			say("accepted", number)
			return
		}
		log.Print(err)
		time.Sleep(interval)
	}
}

func work(server asynq.RedisClientOpt, places int) {
	worker := asynq.NewServer(server, asynq.Config{
		Concurrency:              places,
		DelayedTaskCheckInterval: interval,
		TaskCheckInterval:        interval,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return 0 },
	})
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	if err := worker.Start(asynq.HandlerFunc(run)); err != nil {
		log.Fatal(err)
	}
	say("ready")
	<-ended
	worker.Shutdown()
}

func run(ctx context.Context, task *asynq.Task) error {
	number, err := strconv.Atoi(string(task.Payload()))
	if err != nil {
		return err
	}
	if tries, _ := asynq.GetRetryCount(ctx); number%50 == 0 && tries == 0 {
		return errors.New("the first attempt fails")
	}
	say("ran", number)
	return nil
}
