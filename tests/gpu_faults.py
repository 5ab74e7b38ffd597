"""Known faults of what only a GPU meets, see `tests/faults.py`; `docs/performance.md` names the finding of each."""

from tests.faults import Fault

STREAM, CLOCK = "jakiro/engine/stream.py", "tests/engine/test_clock.py"
CAPTURE, MEMORY = "jakiro/graphs/capture.py", "tests/graphs/test_memory.py"
CAPTURED, TAGGED = "tests/graphs/test_capture.py", "tests/engine/test_device_tags.py"
LOADING, SCARCE = "jakiro/zoo/loading.py", "tests/graphs/test_out_of_memory.py"
TRAINED = "tests/training/test_device_tags.py"

GPU_FAULTS = (
    Fault(
        "gpu-spans-counted-twice",
        "jakiro/engine/clock.py",
        "            ms -= max(span - self._paused_ms, 0.0)\n",
        "",
        (f"{CLOCK}::test_on_a_gpu_events_time_what_comes_before_the_copy_and_the_host_the_rest",),
    ),
    Fault(
        "gpu-a-draft-begun-ahead-is-taken-off-whole",
        "jakiro/engine/clock.py",
        "max(span - self._paused_ms, 0.0)",
        "span",
        (f"{CLOCK}::test_of_a_draft_that_began_ahead_only_what_the_step_waits_for_is_taken_off_its_time",),
    ),
    Fault(
        "gpu-graphs-are-never-dropped",
        CAPTURE,
        "        while self.num_bytes > self.budget:\n",
        "        while False:\n",
        (f"{MEMORY}::test_graphs_of_older_answers_make_room_and_the_text_stays_the_same",),
    ),
    Fault(
        "gpu-a-refused-capture-leaves-the-thread-aside",
        CAPTURE,
        "                torch.cuda.set_stream(current)\n",
        "",
        (f"{MEMORY}::test_a_refused_capture_leaves_the_thread_where_it_was_and_names_the_first_error",),
    ),
    Fault(
        "gpu-a-dropped-lane-waits-for-the-collector",
        "jakiro/graphs/lane.py",
        "        self.passes.clear()\n",
        "",
        (f"{MEMORY}::test_a_dropped_lane_is_freed_without_the_garbage_collector",),
    ),
    Fault(
        "gpu-one-lane-for-a-race",
        "jakiro/graphs/pool.py",
        "min(side_by_side, len(drafters))",
        "1",
        (f"{MEMORY}::test_the_page_s_first_answer_captures_nothing_more",),
    ),
    Fault(
        "gpu-a-lane-that-did-not-fit-stays-the-size",
        "jakiro/graphs/pool.py",
        "            larger = self._room.joined(room)\n",
        "            larger = self._room = self._room.joined(room)\n",
        (f"{MEMORY}::test_a_lane_too_large_for_the_memory_does_not_raise_the_size_of_the_next",),
    ),
    Fault(
        "gpu-rotary-frequencies-are-rounded",
        "jakiro/heads/rotary.py",
        "lambda tensor: tensor.to(fn(tensor).device)",
        "fn",
        ("tests/training/test_device_tags.py::test_device_tag_rotary_frequencies_stay_float32_in_any_dtype",),
    ),
    Fault(
        "gpu-any-tree-is-said-to-round-alike",
        STREAM,
        " and self._target.rounds_alike(tree.nodes)",
        "",
        ("tests/target/test_numerics.py::test_a_tree_of_more_rows_than_plain_decoding_s_is_not_said_to_round_alike",),
    ),
    Fault(
        "gpu-float64-attention-over-pads",
        "jakiro/target/joint.py",
        "    seen = live if exact else count\n",
        "    seen = count\n",
        ("tests/graphs/test_true_shapes.py::test_a_step_at_true_shapes_stays_within_its_budget",),
    ),
    Fault(
        "gpu-borrowed-captures-what-it-hardly-runs",
        CAPTURE,
        "self.enabled and runs >= self.fewest_runs and",
        "self.enabled and",
        (f"{CAPTURED}::test_a_borrowed_gpu_captures_only_what_an_answer_runs_often_enough",),
    ),
    Fault(
        "gpu-borrowed-captures-at-load",
        LOADING,
        "    if options.capture_at_load:\n",
        "    if options.graphs:\n",
        (f"{TAGGED}::test_device_tag_answers_in_zerogpu_s_way",),
    ),
    Fault(
        "gpu-zerogpu-runs-kernel-by-kernel",
        "app/devices/choose.py",
        '"full", capture_at_load=False',
        '"full", graphs=False',
        ("tests/app/devices/test_zero.py::test_a_space_reads_its_pair_without_a_gpu_and_leaves_capturing_to_answers",),
    ),
    Fault(
        "gpu-batches-stay-on-the-cpu",
        "jakiro/training/validation.py",
        "cache.batch(group).to(device)",
        "cache.batch(group)",
        (f"{TRAINED}::test_device_tag_training_reaches_its_checkpoint",),
    ),
    Fault(
        "gpu-emulated-bfloat16-is-taken",
        LOADING,
        "including_emulation=False",
        "including_emulation=True",
        (f"{TRAINED}::test_device_tag_cards_that_emulate_bfloat16_get_float16",),
    ),
    Fault(
        "gpu-cudnn-attends",
        LOADING,
        "enable_cudnn_sdp(False)",
        "enable_cudnn_sdp(True)",
        (f"{TAGGED}::test_device_tag_loading_turns_cudnn_s_attention_off",),
    ),
    Fault(
        "gpu-every-process-keeps-the-target",
        "jakiro/training/commands/train.py",
        "    del model\n",
        "",
        ("tests/training/test_commands.py::test_processes_wait_for_the_features_and_none_keeps_the_target",),
    ),
    Fault(
        "gpu-grouped-heads-meet-the-math-kernel",
        "jakiro/heads/layers.py",
        "        if self.grouped and mask is not None:\n",
        "        if False:\n",
        ("tests/heads/test_joined.py::test_a_joined_head_attends_by_groups_as_the_stock_layer_does",),
    ),
    Fault(
        "gpu-bytes-without-graphs",
        "jakiro/graphs/pool.py",
        "sum(lane.num_bytes for lane in self._all) + self.graphs.num_bytes",
        "sum(lane.num_bytes for lane in self._all)",
        (f"{MEMORY}::test_bytes_count_the_captures_of_answers_too",),
    ),
    Fault(
        "gpu-weights-go-through-memory",
        "jakiro/zoo/placement.py",
        'if bits or device.type == "cuda" else',
        "if bits else",
        ("tests/zoo/test_loading.py::test_weights_go_straight_to_a_gpu",),
    ),
    Fault(
        "gpu-the-probe-has-no-room",
        "jakiro/target/model.py",
        "24 + num_tokens + self.row_bucket(max(2 * num_tokens, *PROBED_NODES))",
        "24 + max(2 * num_tokens, *PROBED_NODES)",
        ("tests/target/test_numerics.py::test_the_load_probe_has_room_for_passes_of_as_many_rows_as_on_a_gpu",),
    ),
    Fault(
        "gpu-memory-that-runs-out-is-torch-s-text",
        LOADING,
        "return within_memory(load, _no_memory(options.target))",
        "return load()",
        (f"{SCARCE}::test_memory_that_runs_out_anywhere_in_loading_is_a_sentence_and_leaves_nothing_behind",),
    ),
    Fault(
        "gpu-a-borrowed-process-takes-its-pair-apart",
        LOADING,
        "model=_copied(read.model, device)",
        "model=read.model.to(device)",
        (
            f"{SCARCE}"
            "::test_memory_that_runs_out_anywhere_in_a_borrowed_process_leaves_the_pair_it_was_forked_with_whole",
        ),
    ),
)
