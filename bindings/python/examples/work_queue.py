"""A work queue: workers claim jobs with a lease; a failed job is redelivered, then a dead letter."""

import tempfile

import weir


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, weir.open(directory) as store:
        store.topic("failed").ensure()
        jobs = store.topic("jobs")
        jobs.ensure()
        jobs.batch([weir.Put("", f'{{"job":{n}}}') for n in range(5)])

        group = jobs.group("workers", lease=30.0, attempts=2, dead_letters="failed")
        done = []
        while work := group.claim(max=2, timeout=0.2):
            for one in work:
                number = one.record.get("$.job")
                if number == 3:
                    group.nack([one], reason="cannot do this one")
                else:
                    done.append(number)
                    group.ack([one])
        assert sorted(done) == [0, 1, 2, 4]

        letters = next(store.topic("failed").follow_pages(after=1, timeout=5.0))
        print("done", sorted(done), "dead letters", [letter.text() for letter in letters])
        # The reason of the failure comes before the original value.
        assert letters[0].get("$.reason") == "cannot do this one" and letters[1].get("$.job") == 3


if __name__ == "__main__":
    main()
