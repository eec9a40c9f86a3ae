"""Lock libraries in Python over Redis, as benches/redis of heirlock-bench asks for them. Prints JSON.

redis_locks.py URL hand_over LIBRARY TIMES: from the call of release in one process to the lock in another that waits; a list of microseconds.
redis_locks.py URL contended LIBRARY CONTENDERS SECONDS: locks a second of so many processes on one key, and how many
    of them another had before.
"""

import json
import multiprocessing
import sys
import time
import uuid

import redis
import redis_lock

URL, WHAT, LIBRARY = sys.argv[1:4]


def new_lock(name):
    # Each as its documentation shows it first, with a time to live.
    client = redis.Redis.from_url(URL)
    if LIBRARY == "redis-py":
        return client.lock(name, timeout=30)
    return redis_lock.Lock(client, name, expire=30)


def new_name():
    return f"heirlock-bench {uuid.uuid4()}"


def peer(name, pipe):
    """Does what it is told, and says when."""
    lock = new_lock(name)
    pipe.send(0)
    while True:
        try:
            word = pipe.recv()
        except EOFError:
            return
        at = time.monotonic_ns()
        if word == "lock":
            lock.acquire()
            at = time.monotonic_ns()
        else:
            lock.release()
        pipe.send(at)


def hand_over(times):
    context = multiprocessing.get_context("spawn")
    name, pipes = new_name(), []
    for _ in range(2):
        ours, theirs = context.Pipe()
        context.Process(target=peer, args=(name, theirs), daemon=True).start()
        pipes.append(ours)
    for pipe in pipes:
        pipe.recv()
    pipes[0].send("lock")
    pipes[0].recv()
    spans = []
    for number in range(times):
        holder, waiter = pipes[number % 2], pipes[1 - number % 2]
        waiter.send("lock")
        # Nobody sees who waits; it has tried once by then.
        time.sleep(0.02)
        holder.send("release")
        released, acquired = holder.recv(), waiter.recv()
        spans.append(max(acquired - released, 0) / 1e3)
    return spans


def contend(name, ready, begin, locks, passes, last, number, seconds):
    lock = new_lock(name)
    ready.release()
    begin.wait()
    until = time.monotonic() + seconds
    while True:
        lock.acquire()
        if time.monotonic() >= until:
            lock.release()
            return
        # Only who holds the lock is here.
        locks.value += 1
        passes.value += last.value != number
        last.value = number
        lock.release()


def contended(contenders, seconds):
    context = multiprocessing.get_context("fork")
    locks, passes, last = (context.Value("q", start, lock=False) for start in (0, 0, -1))
    ready, begin = context.Semaphore(0), context.Event()
    rest = (new_name(), ready, begin, locks, passes, last)
    processes = [context.Process(target=contend, args=(*rest, number, seconds)) for number in range(contenders)]
    for process in processes:
        process.start()
    for _ in processes:
        ready.acquire()
    begin.set()
    for process in processes:
        process.join()
    return {"locks": locks.value / seconds, "passes": passes.value / seconds}


if __name__ == "__main__":
    words = [int(word) for word in sys.argv[4:]]
    print(json.dumps(hand_over(*words) if WHAT == "hand_over" else contended(*words)))
