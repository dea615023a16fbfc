"""The cases of channels and messages, and their targets. Messages have 64 bytes; subscribers speak RESP2.

Each measurement has a server of its own: the traffic program warms it up for a quarter of the time.
"""

from dataclasses import dataclass

from figures import ALL, CLIENT_SHARE, P50_MS, P99_MS, Metric, Target, at_least, at_most
from servers import Persistence

PUBLISHES_S = Metric("publishes_s", "PUBLISH/s", "{:,.0f}")
DELIVERIES_S = Metric("deliveries_s", "deliveries/s", "{:,.0f}")
CPU_PUBLISH = Metric("cpu_us_per_publish", "CPU us/PUBLISH", "{:.2f}")
CPU_DELIVERY = Metric("cpu_us_per_delivery", "CPU us/delivery", "{:.3f}")
CHURN_S = Metric("churn_s", "pairs/s", "{:,.0f}")
DELAY_P99_MS = Metric("delay_p99_ms", "delivery p99 ms", "{:.3f}")
RSS_PEAK = Metric("rss_peak_mb", "RSS peak MB", "{:,.0f}")
REPLAYED_S = Metric("replayed_s", "replayed/s", "{:,.0f}")
CHECKED = Metric("checked", "messages checked", "{:,.0f}")
BUILT_S = Metric("built_s", "built s", "{:.2f}")
CPU_SUBSCRIPTION = Metric("cpu_us_per_subscription", "CPU us each", "{:.2f}")
SUBSCRIPTION_BYTES = Metric("rss_bytes", "RSS bytes each", "{:.0f}")
LEFT_BYTES = Metric("left_bytes", "RSS bytes each, after", "{:.0f}")
GIVEN_BACK = Metric("given_back_share", "given back", "{:.0%}")
PAIRS_S = Metric("pairs_s", "pairs/s", "{:,.0f}")
CPU_PAIR = Metric("cpu_us_per_pair", "CPU us/pair", "{:.2f}")

# One measurement, without its warm-up.
SECONDS = 4.0
CHANNELS = 1_000_000
PATTERNS = 10_000
CHURN = 10_000
SLOW = 200
REPLAYED = 2_000_000


@dataclass(frozen=True)
class Run:
    """One row: its name, and the action of the traffic program, for some seconds if it `is_timed`, else until
    it is done.

    With `is_bullmq` the program of BullMQ runs instead.
    """

    op: str
    arguments: tuple[str, ...]
    is_timed: bool = True
    is_bullmq: bool = False

    def words(self, scale: int) -> tuple[str, ...]:
        """The arguments of the program."""
        return (*self.arguments, "--seconds", f"{SECONDS / scale:g}") if self.is_timed else self.arguments

    def forecast_s(self, scale: int) -> float:
        """The rough duration, with the warm-up."""
        return 1.25 * SECONDS / scale + 0.5 if self.is_timed else 18.0


@dataclass(frozen=True)
class MessageCase:
    """The traffic program against a fresh server; per server and run one measurement per repetition."""

    name: str
    title: str
    runs: tuple[Run, ...]
    metrics: tuple[Metric, ...]
    ratios: tuple[Metric, ...]
    targets: tuple[Target, ...]
    contenders: tuple[str, ...] = ALL
    persistence: Persistence = Persistence.OFF
    # Flags of Sheaf.
    flags: tuple[str, ...] = ()

    @property
    def operations(self) -> tuple[str, ...]:
        """The names of the rows."""
        return tuple(run.op for run in self.runs)


def _publish(op: str, *flags: str, **options: int) -> Run:
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return Run(op, ("publish", *words, *flags))


FLOOD_SUBSCRIBERS = 100
FLOOD = Run(
    "closed loop",
    ("flood", "--publishers", "50", "--pipeline", "16", "--subscribers", str(FLOOD_SUBSCRIBERS)),
)
FLOOD_RATES = (20_000, 40_000, 60_000)

MESSAGE_CASES: tuple[MessageCase, ...] = (
    MessageCase(
        name="publish-unheard",
        title="PUBLISH to 10 000 random channels, no subscribers, 50 publishers",
        runs=tuple(_publish(f"P={p}", publishers=50, pipeline=p, channels=10_000) for p in (16, 64)),
        metrics=(PUBLISHES_S, P50_MS, P99_MS, CPU_PUBLISH, CLIENT_SHARE),
        ratios=(PUBLISHES_S, CPU_PUBLISH),
        targets=at_most(CPU_PUBLISH, 0.65, "redis", "P=16") + at_most(CPU_PUBLISH, 0.5, "redis", "P=64"),
    ),
    MessageCase(
        name="publish-many",
        title="PUBLISH to 100 channels with 10 subscribers each (1000 connections), 50 publishers",
        runs=tuple(_publish(f"P={p}", publishers=50, pipeline=p, channels=100, subscribers=10) for p in (1, 16)),
        metrics=(PUBLISHES_S, DELIVERIES_S, P50_MS, P99_MS, CPU_DELIVERY, CLIENT_SHARE),
        ratios=(DELIVERIES_S, CPU_DELIVERY),
        targets=at_most(CPU_DELIVERY, 1.0, "redis", "P=1")
        + at_most(CPU_DELIVERY, 0.8, "redis", "P=16")
        + at_least(DELIVERIES_S, 1.2, "redis", "P=1", "P=16"),
    ),
    MessageCase(
        name="publish-hot",
        title="PUBLISH to one channel, 50 publishers, P=16",
        runs=tuple(
            _publish(f"{count} subscribers", publishers=50, pipeline=16, channels=1, listened=1, subscribers=count)
            for count in (10, 100)
        ),
        metrics=(PUBLISHES_S, DELIVERIES_S, P50_MS, P99_MS, CPU_DELIVERY, CLIENT_SHARE),
        ratios=(DELIVERIES_S, CPU_DELIVERY),
        targets=at_most(CPU_DELIVERY, 0.6, "redis", "10 subscribers")
        + at_most(CPU_DELIVERY, 0.4, "redis", "100 subscribers")
        + at_least(DELIVERIES_S, 1.5, "redis", "10 subscribers")
        + at_least(DELIVERIES_S, 2.0, "redis", "100 subscribers"),
    ),
    MessageCase(
        name="publish-flood",
        title="PUBLISH to one channel, 50 publishers, P=16, 100 subscribers that read on a thread of their own",
        runs=(FLOOD, *(Run(f"{rate:,}/s", (*FLOOD.arguments, "--rate", str(rate))) for rate in FLOOD_RATES)),
        metrics=(PUBLISHES_S, DELIVERIES_S, P50_MS, P99_MS, DELAY_P99_MS, CPU_DELIVERY, CLIENT_SHARE, CHECKED),
        ratios=(DELIVERIES_S, CPU_DELIVERY),
        targets=at_least(DELIVERIES_S, 1.0, "redis", FLOOD.op)
        + at_most(CPU_DELIVERY, 0.5, "redis", FLOOD.op)
        + tuple(
            target
            for rate in FLOOD_RATES
            for target in at_least(DELIVERIES_S, 0.99 * rate * FLOOD_SUBSCRIBERS, None, f"{rate:,}/s")
        ),
    ),
    MessageCase(
        name="publish-patterns",
        title="PUBLISH to 100 channels, 50 publishers, P=1, beside patterns that begin like them and match none",
        runs=(
            _publish("no patterns", publishers=50, pipeline=1, channels=100),
            _publish("10,000 patterns", publishers=50, pipeline=1, channels=100, patterns=PATTERNS),
        ),
        metrics=(PUBLISHES_S, P50_MS, P99_MS, CPU_PUBLISH, CLIENT_SHARE),
        ratios=(PUBLISHES_S, P99_MS),
        targets=at_most(P99_MS, 2.0, "no patterns", "10,000 patterns"),
    ),
    MessageCase(
        name="publish-churn",
        title="PUBLISH to 100 channels, half of them with a subscriber, 50 publishers, P=16, while others come and go",
        runs=(
            _publish("undisturbed", publishers=50, pipeline=16, channels=100, listened=50, subscribers=1, span=5),
            _publish(
                "churn", publishers=50, pipeline=16, channels=100, listened=50, subscribers=1, span=5, churn=CHURN
            ),
        ),
        metrics=(PUBLISHES_S, DELIVERIES_S, CHURN_S, P99_MS, CPU_PUBLISH, CLIENT_SHARE, CHECKED),
        ratios=(PUBLISHES_S, CPU_PUBLISH),
        targets=at_least(PUBLISHES_S, 0.9, "undisturbed", "churn") + at_least(CHURN_S, CHURN * 0.99, None, "churn"),
    ),
    MessageCase(
        name="publish-slow",
        title="PUBLISH to 10 channels with 10 subscribers each, 50 publishers, P=16, beside 200 readers of 1 KB/s",
        runs=(
            _publish("undisturbed", publishers=50, pipeline=16, channels=10, listened=10, subscribers=10),
            _publish("slow readers", publishers=50, pipeline=16, channels=10, listened=10, subscribers=10, slow=SLOW),
        ),
        metrics=(PUBLISHES_S, DELIVERIES_S, P99_MS, DELAY_P99_MS, CPU_DELIVERY, RSS_PEAK, CHECKED),
        ratios=(DELIVERIES_S, DELAY_P99_MS),
        targets=at_most(P99_MS, 2.0, "undisturbed", "slow readers")
        + at_most(DELAY_P99_MS, 2.0, "undisturbed", "slow readers")
        + at_most(RSS_PEAK, 1000, None, "slow readers"),
    ),
    MessageCase(
        name="publish-durable",
        title="PUBLISH to a durable channel, 50 publishers, P=16, every confirmed message on disk",
        runs=(
            _publish("10 SUBSCRIBE", publishers=50, pipeline=16, channels=1, listened=1, subscribers=10),
            _publish("10 XSUBSCRIBE", "--log", publishers=50, pipeline=16, channels=1, listened=1, subscribers=10),
            Run("replay", ("replay", "--messages", str(REPLAYED)), is_timed=False),
        ),
        metrics=(PUBLISHES_S, DELIVERIES_S, REPLAYED_S, P50_MS, P99_MS, CPU_DELIVERY, CLIENT_SHARE),
        ratios=(),
        targets=at_least(PUBLISHES_S, 150_000, None, "10 SUBSCRIBE", "10 XSUBSCRIBE")
        + at_least(REPLAYED_S, 1_000_000, None, "replay"),
        contenders=("sheaf",),
        persistence=Persistence.SYNCED,
        flags=("--durable-channels", "channel:*"),
    ),
    MessageCase(
        name="subscribe-many",
        title="1M channels, subscribed to by 100 connections, which leave",
        runs=(Run("SUBSCRIBE", ("many", "--connections", "100", "--channels", str(CHANNELS)), is_timed=False),),
        metrics=(BUILT_S, CPU_SUBSCRIPTION, SUBSCRIPTION_BYTES, LEFT_BYTES, GIVEN_BACK),
        ratios=(BUILT_S, SUBSCRIPTION_BYTES),
        targets=at_most(BUILT_S, 2.5, None, "SUBSCRIBE")
        + at_most(SUBSCRIPTION_BYTES, 200, None, "SUBSCRIBE")
        + at_least(GIVEN_BACK, 0.9, None, "SUBSCRIBE"),
    ),
    MessageCase(
        name="subscribe-pairs",
        title="SUBSCRIBE and UNSUBSCRIBE on one connection, 200 pairs at once",
        runs=(Run("pairs", ("pairs", "--batch", "200")),),
        metrics=(PAIRS_S, CPU_PAIR, CLIENT_SHARE),
        ratios=(PAIRS_S, CPU_PAIR),
        targets=at_least(PAIRS_S, 1.0, "redis", "pairs"),
    ),
)
