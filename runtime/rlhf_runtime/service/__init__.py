"""The controller's process on a cluster: the run of `rlhf run`, with an operator that asks and a kubelet that ends.

    __main__ ─► process ─► cluster.py   joins the job's Ray cluster
                   │  ├──► job.runner   trains, and tells `reporter`, which logs and fills the board
                   │  └──► stopping     Suspend and SIGTERM
                   │        board       what is known of the run: its report, and how it ended
                   ├─────► server       JobControl for the operator, over TLS
                   └─────► health       for the kubelet

It is alive within a second; torch and Ray are imported when health and JobControl already answer.
"""
