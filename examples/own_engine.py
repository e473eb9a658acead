"""An engine of one's own: it sends every request to another process and waits for the answer."""

# --8<-- [start:engine]
import multiprocessing
import pickle

import turnout as to


def serve(pipe):
    """Answer requests in another process, with the reference engine, until the pipe is closed."""
    engine = to.engine.Sequential()
    while True:
        try:
            questions = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        pipe.send_bytes(pickle.dumps(engine.answer(questions)))


class ElsewhereEngine(to.engine.EngineWrapper):
    """The reference engine in a process of its own; what is not overridden here is the reference engine's."""

    name = "elsewhere"

    def __init__(self):
        super().__init__(to.engine.Sequential())
        context = multiprocessing.get_context("spawn")
        self.pipe, far_end = context.Pipe()
        self.process = context.Process(target=serve, args=(far_end,), daemon=True)
        self.process.start()
        far_end.close()  # the other process has its own; when ours is closed, it ends

    def answer(self, questions):
        """Return one answer per question, in order; a question is a task and a request."""
        self.pipe.send_bytes(pickle.dumps(questions))
        return pickle.loads(self.pipe.recv_bytes())

    def close(self):
        """End the other process; a study calls this when it is done."""
        self.pipe.close()
        self.process.join()


# --8<-- [end:engine]

# --8<-- [start:study]
study = to.Study(
    name="elsewhere",
    data=to.data.Digits(clients=10, partition=to.data.partition.Dirichlet(concentration=0.3)),
    model=to.models.Softmax(),
    local=to.local.SGD(lr=0.1, batch_size=10, epochs=1),
    arms=[to.arm("FedAvg"), to.arm("SCAFFOLD", local=to.local.SGD(lr=0.1, batch_size=10, epochs=1, control="average"))],
    rounds=5,
    seeds=2,
)

if __name__ == "__main__":
    print(study.run(engine=ElsewhereEngine()).table())
# --8<-- [end:study]
