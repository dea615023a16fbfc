"""The cases of scripts and streams as queues of jobs, and their targets. Every acknowledged write is on disk.

Each measurement has a server of its own. The load comes from `traffic jobs`, or from BullMQ in one node
process.
"""

from figures import ALL, CLIENT_SHARE, P50_MS, P99_MS, Metric, at_least
from message_cases import MessageCase, Run
from servers import Persistence

JOBS_S = Metric("jobs_s", "jobs/s", "{:,.0f}")
CPU_JOB = Metric("cpu_us_per_job", "CPU us/job", "{:.1f}")

STREAM_JOBS = 100_000
BULLMQ_JOBS = 20_000

JOB_CASES: tuple[MessageCase, ...] = (
    MessageCase(
        name="jobs-stream",
        title="XREADGROUP of one entry and XACK in turns, 50 connections, every acknowledged write on disk",
        runs=(Run("50 workers", ("jobs", "--connections", "50", "--jobs", str(STREAM_JOBS)), is_timed=False),),
        metrics=(JOBS_S, P50_MS, P99_MS, CPU_JOB, CLIENT_SHARE),
        ratios=(JOBS_S, CPU_JOB),
        targets=at_least(JOBS_S, 1.5, "redis", "50 workers"),
        persistence=Persistence.SYNCED,
    ),
    MessageCase(
        name="jobs-bullmq",
        title="BullMQ: jobs added one by one and done, 50 at once, every acknowledged write on disk",
        runs=(Run("BullMQ", ("--places", "50", "--jobs", str(BULLMQ_JOBS)), is_timed=False, is_bullmq=True),),
        metrics=(JOBS_S, CPU_JOB, CLIENT_SHARE),
        ratios=(JOBS_S, CPU_JOB),
        targets=at_least(JOBS_S, 1.0, "redis", "BullMQ"),
        persistence=Persistence.SYNCED,
    ),
)
