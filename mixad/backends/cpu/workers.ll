; The native half of workers.py: how threads share the tiles of one job.
;
; A job is `count` tickets, each good for `chunk` tiles. Whoever takes one (atomically, counting
; down) runs its tiles; whoever hands in the last result wakes the poster. A ticket keeps its job
; open, so its holder may read the job's fields, and one who comes late finds no ticket or, with
; equal right, one of the next job.
;
; A thread that waits is in one of three states: awake (0), called (1), asleep on its lock (2).
; Calling exchanges the state for 1 and releases the lock of one who slept. A waiter looks at what
; it waits for after every change of its state to 0, so no call is lost; a call too many is harmless.

%waiter = type { i32, i32, ptr, ptr, [5 x i64] }        ; state, -, lock, pool; one cache line

%pool = type {
  i64, [7 x i64],                                       ; 0, 1: busy: 1 while someone's job runs
  i64, [7 x i64],                                       ; 2, 3: tickets left, or less than 1
  i64, [7 x i64],                                       ; 4, 5: results missing
  ptr, ptr, i64, i64, i64, [3 x i64],                   ; 6-11: kernel, arguments, tiles, chunk, count
  %waiter,                                              ; 12: the poster
  i64, i64, i64, i64, ptr, ptr, [2 x i64],              ; 13-19: quit, alive, workers, spins, acquire, release
  ptr, ptr, ptr, i64, [4 x i64],                        ; 20-24: request: pool, kernel, arguments, tiles
  [0 x %waiter]                                         ; 25: the workers
}

; Whether `*word` became `wanted` within so many looks at it.
define internal i1 @spin(ptr %word, i64 %wanted, i64 %looks) {
entry:
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %k1, %again ]
  %seen = load atomic i64, ptr %word seq_cst, align 8
  %same = icmp eq i64 %seen, %wanted
  br i1 %same, label %yes, label %no
no:
  %k1 = add i64 %k, 1
  %more = icmp slt i64 %k1, %looks
  br i1 %more, label %again, label %never
again:
  call void @pause()
  br label %look
yes:
  ret i1 true
never:
  ret i1 false
}

; Spin on a word of its own that never changes: to measure how long a look takes.
define void @spin_in_vain(ptr %pool, i64 %looks) {
  %never = getelementptr %pool, ptr %pool, i32 0, i32 13
  %seen = call i1 @spin(ptr %never, i64 -1, i64 %looks)
  ret void
}

define internal void @call_waiter(ptr %pool, ptr %waiter) {
  %old = atomicrmw xchg ptr %waiter, i32 1 seq_cst
  %slept = icmp eq i32 %old, 2
  br i1 %slept, label %wake, label %done
wake:
  %lockp = getelementptr %waiter, ptr %waiter, i32 0, i32 2
  %lock = load ptr, ptr %lockp
  %releasep = getelementptr %pool, ptr %pool, i32 0, i32 18
  %release = load ptr, ptr %releasep
  call void %release(ptr %lock)
  br label %done
done:
  ret void
}

define internal void @sleep(ptr %pool, ptr %waiter) {
  %lockp = getelementptr %waiter, ptr %waiter, i32 0, i32 2
  %lock = load ptr, ptr %lockp
  %acquirep = getelementptr %pool, ptr %pool, i32 0, i32 17
  %acquire = load ptr, ptr %acquirep
  %got = call i32 %acquire(ptr %lock, i32 1)
  ret void
}

; Take tickets and run their tiles until there are none.
define void @drain(ptr %pool) {
entry:
  %ticketsp = getelementptr %pool, ptr %pool, i32 0, i32 2
  %missingp = getelementptr %pool, ptr %pool, i32 0, i32 4
  %kernelp = getelementptr %pool, ptr %pool, i32 0, i32 6
  %argumentsp = getelementptr %pool, ptr %pool, i32 0, i32 7
  %tilesp = getelementptr %pool, ptr %pool, i32 0, i32 8
  %chunkp = getelementptr %pool, ptr %pool, i32 0, i32 9
  %countp = getelementptr %pool, ptr %pool, i32 0, i32 10
  %poster = getelementptr %pool, ptr %pool, i32 0, i32 12
  br label %next
next:
  %left = load atomic i64, ptr %ticketsp seq_cst, align 8
  %any = icmp sgt i64 %left, 0
  br i1 %any, label %take, label %done
take:
  %ticket = atomicrmw sub ptr %ticketsp, i64 1 seq_cst
  %good = icmp sgt i64 %ticket, 0
  br i1 %good, label %work, label %done
work:
  %kernel = load ptr, ptr %kernelp
  %arguments = load ptr, ptr %argumentsp
  %tiles = load i64, ptr %tilesp
  %chunk = load i64, ptr %chunkp
  %count = load i64, ptr %countp
  %index = sub i64 %count, %ticket
  %begin = mul i64 %index, %chunk
  %full = add i64 %begin, %chunk
  %over = icmp sgt i64 %full, %tiles
  %end = select i1 %over, i64 %tiles, i64 %full
  call void %kernel(ptr %arguments, i64 %begin, i64 %end)
  %missing = atomicrmw sub ptr %missingp, i64 1 seq_cst
  %last = icmp eq i64 %missing, 1
  br i1 %last, label %report, label %next
report:
  call void @call_waiter(ptr %pool, ptr %poster)
  br label %next
done:
  ret void
}

; A worker thread's life.
define void @work(ptr %me) {
entry:
  %poolp = getelementptr %waiter, ptr %me, i32 0, i32 3
  %pool = load ptr, ptr %poolp
  %quitp = getelementptr %pool, ptr %pool, i32 0, i32 13
  %alivep = getelementptr %pool, ptr %pool, i32 0, i32 14
  %spinsp = getelementptr %pool, ptr %pool, i32 0, i32 16
  br label %wait
wait:
  %spins = load atomic i64, ptr %spinsp seq_cst, align 8
  br label %look
look:
  %k = phi i64 [ 0, %wait ], [ %k1, %again ]
  %state = load atomic i32, ptr %me seq_cst, align 8
  %called = icmp eq i32 %state, 1
  br i1 %called, label %awake, label %not_yet
not_yet:
  %k1 = add i64 %k, 1
  %more = icmp slt i64 %k1, %spins
  br i1 %more, label %again, label %tire
again:
  call void @pause()
  br label %look
tire:
  %pair = cmpxchg ptr %me, i32 0, i32 2 seq_cst seq_cst
  %asleep = extractvalue { i32, i1 } %pair, 1
  br i1 %asleep, label %rest, label %awake
rest:
  call void @sleep(ptr %pool, ptr %me)
  br label %awake
awake:                                                  ; what was posted before the end is run
  store atomic i32 0, ptr %me seq_cst, align 8
  call void @drain(ptr %pool)
  %quit = load atomic i64, ptr %quitp seq_cst, align 8
  %leave = icmp ne i64 %quit, 0
  br i1 %leave, label %end, label %wait
end:
  %before = atomicrmw sub ptr %alivep, i64 1 seq_cst
  ret void
}

define internal i1 @claim(ptr %pool) {
  %pair = cmpxchg ptr %pool, i64 0, i64 1 seq_cst seq_cst
  %mine = extractvalue { i64, i1 } %pair, 1
  ret i1 %mine
}

; Give the claimed pool to the next poster.
define void @finish(ptr %pool) {
  store atomic i64 0, ptr %pool seq_cst, align 8
  ret void
}

; Publish a job in the claimed pool and call as many workers as there are tickets to share.
define internal void @post(ptr %pool, ptr %kernel, ptr %arguments, i64 %tiles, i64 %chunk, i64 %count, i64 %calls) {
entry:
  %ticketsp = getelementptr %pool, ptr %pool, i32 0, i32 2
  %missingp = getelementptr %pool, ptr %pool, i32 0, i32 4
  %kernelp = getelementptr %pool, ptr %pool, i32 0, i32 6
  %argumentsp = getelementptr %pool, ptr %pool, i32 0, i32 7
  %tilesp = getelementptr %pool, ptr %pool, i32 0, i32 8
  %chunkp = getelementptr %pool, ptr %pool, i32 0, i32 9
  %countp = getelementptr %pool, ptr %pool, i32 0, i32 10
  %poster = getelementptr %pool, ptr %pool, i32 0, i32 12
  store ptr %kernel, ptr %kernelp
  store ptr %arguments, ptr %argumentsp
  store i64 %tiles, ptr %tilesp
  store i64 %chunk, ptr %chunkp
  store i64 %count, ptr %countp
  store atomic i32 0, ptr %poster seq_cst, align 8
  store atomic i64 %count, ptr %missingp seq_cst, align 8
  store atomic i64 %count, ptr %ticketsp seq_cst, align 8
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k1, %call ]
  %more = icmp slt i64 %k, %calls
  br i1 %more, label %call, label %done
call:
  %worker = getelementptr %pool, ptr %pool, i32 0, i32 25, i64 %k
  call void @call_waiter(ptr %pool, ptr %worker)
  %k1 = add i64 %k, 1
  br label %loop
done:
  ret void
}

; Whether the posted job is done; if not after so many looks, its poster is to sleep on its lock.
define i32 @poll(ptr %pool, i64 %looks) {
entry:
  %missingp = getelementptr %pool, ptr %pool, i32 0, i32 4
  %poster = getelementptr %pool, ptr %pool, i32 0, i32 12
  br label %look
look:
  %ready = call i1 @spin(ptr %missingp, i64 0, i64 %looks)
  br i1 %ready, label %done, label %tire
tire:
  %pair = cmpxchg ptr %poster, i32 0, i32 2 seq_cst seq_cst
  %state = extractvalue { i32, i1 } %pair, 0
  %called = icmp eq i32 %state, 1
  br i1 %called, label %stay, label %asleep
stay:
  store atomic i32 0, ptr %poster seq_cst, align 8
  br label %look
asleep:
  ret i32 0
done:
  store atomic i32 0, ptr %poster seq_cst, align 8
  ret i32 1
}

; Run all tiles on the workers and this thread; on this thread alone if the pool is taken.
define void @run(ptr %pool, ptr %kernel, ptr %arguments, i64 %tiles) {
entry:
  %workersp = getelementptr %pool, ptr %pool, i32 0, i32 15
  %spinsp = getelementptr %pool, ptr %pool, i32 0, i32 16
  %poster = getelementptr %pool, ptr %pool, i32 0, i32 12
  %workers = load atomic i64, ptr %workersp seq_cst, align 8
  %few = icmp slt i64 %tiles, 2
  %lonely = icmp slt i64 %workers, 1
  %alone = or i1 %few, %lonely
  br i1 %alone, label %inline, label %try
inline:
  call void %kernel(ptr %arguments, i64 0, i64 %tiles)
  br label %end
try:
  %mine = call i1 @claim(ptr %pool)
  br i1 %mine, label %share, label %inline
share:                                                  ; eight tickets a thread: uneven work balances
  %threads = add i64 %workers, 1
  %wanted = mul i64 %threads, 8
  %round = sub i64 %wanted, 1
  %padded = add i64 %tiles, %round
  %chunk = sdiv i64 %padded, %wanted
  %less = sub i64 %chunk, 1
  %padded1 = add i64 %tiles, %less
  %count = sdiv i64 %padded1, %chunk
  %others = sub i64 %count, 1
  %enough = icmp sgt i64 %others, %workers
  %calls = select i1 %enough, i64 %workers, i64 %others
  call void @post(ptr %pool, ptr %kernel, ptr %arguments, i64 %tiles, i64 %chunk, i64 %count, i64 %calls)
  call void @drain(ptr %pool)
  %spins = load atomic i64, ptr %spinsp seq_cst, align 8
  br label %wait
wait:
  %ready = call i32 @poll(ptr %pool, i64 %spins)
  %done = icmp ne i32 %ready, 0
  br i1 %done, label %free, label %rest
rest:
  call void @sleep(ptr %pool, ptr %poster)
  br label %wait
free:
  call void @finish(ptr %pool)
  br label %end
end:
  ret void
}

; The kernel of a stand-in's job: `run` what its request says.
define internal void @run_request(ptr %pool, i64 %begin, i64 %end) {
  %targetp = getelementptr %pool, ptr %pool, i32 0, i32 20
  %kernelp = getelementptr %pool, ptr %pool, i32 0, i32 21
  %argumentsp = getelementptr %pool, ptr %pool, i32 0, i32 22
  %tilesp = getelementptr %pool, ptr %pool, i32 0, i32 23
  %target = load ptr, ptr %targetp
  %kernel = load ptr, ptr %kernelp
  %arguments = load ptr, ptr %argumentsp
  %tiles = load i64, ptr %tilesp
  call void @run(ptr %target, ptr %kernel, ptr %arguments, i64 %tiles)
  ret void
}

; Have the one worker of the pool `stand_in` call `run` in place of this thread, which is to poll.
define void @delegate(ptr %stand_in, ptr %pool, ptr %kernel, ptr %arguments, i64 %tiles) {
  %targetp = getelementptr %pool, ptr %stand_in, i32 0, i32 20
  %kernelp = getelementptr %pool, ptr %stand_in, i32 0, i32 21
  %argumentsp = getelementptr %pool, ptr %stand_in, i32 0, i32 22
  %tilesp = getelementptr %pool, ptr %stand_in, i32 0, i32 23
  store ptr %pool, ptr %targetp
  store ptr %kernel, ptr %kernelp
  store ptr %arguments, ptr %argumentsp
  store i64 %tiles, ptr %tilesp
  call void @post(ptr %stand_in, ptr @run_request, ptr %stand_in, i64 1, i64 1, i64 1, i64 1)
  ret void
}

; Tell the workers to end.
define void @dismiss(ptr %pool) {
entry:
  %quitp = getelementptr %pool, ptr %pool, i32 0, i32 13
  %workersp = getelementptr %pool, ptr %pool, i32 0, i32 15
  %workers = load atomic i64, ptr %workersp seq_cst, align 8
  store atomic i64 0, ptr %workersp seq_cst, align 8
  store atomic i64 1, ptr %quitp seq_cst, align 8
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k1, %call ]
  %more = icmp slt i64 %k, %workers
  br i1 %more, label %call, label %done
call:
  %worker = getelementptr %pool, ptr %pool, i32 0, i32 25, i64 %k
  call void @call_waiter(ptr %pool, ptr %worker)
  %k1 = add i64 %k, 1
  br label %loop
done:
  ret void
}
