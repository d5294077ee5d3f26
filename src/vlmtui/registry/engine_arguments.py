"""Checks before every launch that risky engine arguments come from the user.

An engine argument can name code to run, a file to read, or an address to connect to. Such an argument is accepted if
the user typed it (`--engine-arg`, the command line, `config.toml`: `LoadSpec.typed`), or if a family record that ships
with vlmtui sets it. A user's own family record can't set it. Documents set no engine arguments at all: see
`vlmtui.session.resume`.

The tables classify every field of vLLM's `EngineArgs` and of its server's options in 0.23, 0.32 and 0.33, and the
options of the other backends. An argument that is in no table counts as risky.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache

import msgspec

from vlmtui.domain.dials import is_plain
from vlmtui.domain.engine import LoadSpec
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.registry.schema import OWN_CLASSES, Family
from vlmtui.text import did_you_mean, one_line


class Names(StrEnum):
    """What the value of a risky engine argument can name, in the words of error messages."""

    CODE = "code to run"
    FILE = "a file or folder"
    MODEL = "another model"
    ADDRESS = "an address"
    SECRET = "a key, or what others may see"
    DEVICE = "a device"
    UNKNOWN = "something that vlmtui does not know"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


GUARDED: Mapping[Names, frozenset[str]] = {
    Names.CODE: _words("""
    additional_config attention_config attn_implementation aux_output_config compilation_config
    data_parallel_backend diffusion_config distributed_executor_backend ec_manager_config ec_transfer_config
    engram_config eplb_config fault_tolerance_config io_processor_plugin ir_op_priority kernel_config
    kv_offloading_backend kv_transfer_config log_config_file logging_config logits_processors mamba_config
    middleware model_class_overrides pooler_config quantization_config ray_workers_use_nsight reasoning_config
    reasoning_parser_plugin scheduler_cls sleep_mode_backend structured_outputs_config tool_parser_plugin
    trust_remote_code watchdog_config watermark_config weight_transfer_config worker_cls worker_extension_cls
    """),
    Names.FILE: _words("""
    allowed_local_media_path ca chat_template client_cert default_mm_loras download_dir enable_offline_docs
    generation_config hf_config_path lora_modules mm_encoder_fp8_scale_path mm_encoder_fp8_scale_save_path
    model_loader_extra_config model_weights profiler_config root_path ssl_ca_certs ssl_certfile
    ssl_keyfile
    """),
    Names.MODEL: _words("""
    code_revision model revision served_model_name spec_method spec_model speculative_config tokenizer
    tokenizer_revision
    """),
    Names.ADDRESS: _words("""
    _api_process_count _api_process_rank allow_credentials allow_owner allowed_headers allowed_media_domains
    allowed_methods allowed_origins data_parallel_address data_parallel_external_lb data_parallel_hybrid_lb
    data_parallel_multi_port_external_lb data_parallel_rank data_parallel_rpc_port data_parallel_start_rank
    data_parallel_supervisor_port disable_fastapi_docs enable_ssl_refresh grpc_port host kv_events_config
    master_addr master_port nnodes node_rank otlp_traces_endpoint port ssl_cert_reqs ssl_ciphers tool_server uds
    url
    """),
    Names.SECRET: _words("""
    api_key api_key_env api_key_file enable_log_deltas enable_log_outputs enable_log_requests enable_mm_embeds
    enable_prompt_embeds enable_tokenizer_info_endpoint fail_on_environ_validation headers hf_token max_log_len
    trust_request_chat_template trust_request_mm_kwargs
    """),
    Names.DEVICE: _words("""
    cpu_offload_params device device_ids device_map mm_processor_device numa_bind numa_bind_cpus
    numa_bind_nodes offload_params pt_load_map_location
    """),
}
"""Arguments that only the user or a bundled record may set."""
HARMLESS = _words("""
    aggregate_engine_logging all2all_backend allow_deprecated_quantization anthropic_disabled_thinking_effort
    async_scheduling attention_backend back_off_s block_size calculate_kv_scales chat_template_content_format
    cohere_format cohere_is_reasoning_model collect_detailed_traces config_format convert
    cp_kv_cache_interleave_size cpu_distributed_timeout_seconds cpu_offload_gb cudagraph_capture_sizes
    cudagraph_metrics custom_histogram_buckets data_parallel_size data_parallel_size_local
    dbo_decode_token_threshold dbo_prefill_token_threshold dcp_comm_backend dcp_kv_cache_interleave_size
    dcp_q_replicate deaf_max_s decode_context_parallel_size default_chat_template_kwargs
    disable_access_log_for_endpoints disable_cascade_attn disable_chunked_mm_input disable_custom_all_reduce
    disable_hybrid_kv_cache_manager disable_log_stats disable_nccl_for_dp_synchronization
    disable_sliding_window disable_uvicorn_access_log distributed_timeout_seconds
    dp_supervisor_probe_failure_threshold dp_supervisor_probe_interval_s dp_supervisor_probe_timeout_s
    dp_sync_interval dtype elastic_ep_max_dp_size enable_auto_tool_choice enable_batch_sharded_sampling
    enable_chunked_prefill enable_cumem_allocator enable_dbo enable_elastic_ep enable_ep_weight_filter
    enable_eplb enable_expert_parallel enable_fault_tolerance enable_flash_late_interaction
    enable_flashinfer_autotune enable_force_include_usage enable_hc_sp enable_layerwise_nvtx_tracing
    enable_logging_iteration_details enable_lora enable_mamba_cache_stochastic_rounding
    enable_mamba_shared_prefix_checkpoint enable_mfu_metrics enable_mixed_moe_lora_format
    enable_mm_processor_stats enable_moe_shared_loras enable_nccl_comm_suspend enable_per_request_metrics
    enable_prefix_caching enable_prompt_tokens_details enable_request_id_headers enable_return_routed_experts
    enable_scale_out enable_server_load_tracking enable_shm_tensor_arena enable_sleep_mode
    enable_tower_connector_lora enable_trace_replay enforce_eager exclude_tools_when_tool_choice_none
    expert_placement_strategy fingerprint_mode fingerprint_value fully_sharded_loras gdn_prefill_backend
    gpu_memory_utilization h11_max_header_count h11_max_incomplete_event_size health_s hf_overrides
    ignore_patterns interleave_mm_strings jit_monitor_mode jit_monitor_verbose kda_decode_backend
    kda_prefill_backend kv_cache_dtype kv_cache_dtype_skip_layers kv_cache_memory_bytes kv_cache_metrics
    kv_cache_metrics_sample kv_offloading_size kv_sharing_fast_prefill language_model_only limit_mm_per_prompt
    linear_backend load_format log_error_stack log_level logprobs_mode long_prefill_token_threshold
    long_prefill_token_threshold_adaptive lora_dtype lora_target_modules mamba_backend mamba_block_size
    mamba_cache_dtype mamba_cache_mode mamba_cache_philox_rounds mamba_ssm_cache_dtype mamba_ssu_algorithm
    max_cpu_loras max_cudagraph_capture_size max_logprobs max_long_partial_prefills max_lora_cls_labels
    max_lora_rank max_loras max_model_len max_num_active_seqs max_num_batched_tokens max_num_partial_prefills
    max_num_queued_reqs max_num_queued_tokens max_num_scheduled_tokens max_num_seqs
    max_parallel_loading_workers media_io_kwargs mm_device_do_normalize mm_encoder_attn_backend
    mm_encoder_attn_dtype mm_encoder_fp8_scale_save_margin mm_encoder_only mm_encoder_tp_mode
    mm_hasher_algorithm mm_ipc_gpu_memory_gb mm_processor_cache_gb mm_processor_cache_type mm_processor_kwargs
    mm_shm_cache_max_object_size_mb mm_tensor_ipc model_impl moe_backend monokernel num_gpu_blocks_override
    offload_backend offload_group_size offload_num_in_group offload_prefetch_step optimization_level
    override_attention_dtype override_generation_config patience_s per_request_spec_decode_metrics
    performance_mode pipeline_parallel_size placeholders prefill_context_parallel_size
    prefill_schedule_interval prefix_cache_retention_interval prefix_caching_hash_algo prefix_match_unit
    quantization raw_special_tokens reasoning_effort_map reasoning_parser renderer_num_workers
    replayssm_buffer_len response_role retry_s return_sampling_mask return_tokens_as_token_ids runner
    safetensors_load_strategy safetensors_prefetch_block_size safetensors_prefetch_num_threads
    scheduler_reserve_full_isl scheduling_policy seed show_hidden_metrics_for_version shutdown_timeout
    silence_max_s skip_mm_profiling skip_tokenizer_init sleep_mode_offload_cudagraph
    sleep_preserve_parameter_names sparse_indexer_topk_backend spec_tokens specialize_active_lora
    sse_keep_alive_interval stall_s stream_interval swa_bounded_replay tensor_parallel_size thinking
    tokenizer_mode tokens_only tool_call_parser tool_strict_level ubatch_size use_fp64_gumbel use_replayssm
    use_tqdm_on_load uvicorn_log_level video_pruning_method video_pruning_rate wait_s watermark
""")
"""Numbers, switches, and choices among features of the engine."""
_FREE_TEXT = frozenset({"placeholders", "thinking"})
"""Harmless arguments whose text may be anything."""
_LOAD_FORMATS = frozenset({"auto", "safetensors", "hf", "mistral", "dummy", "gguf", "bitsandbytes", "fastsafetensors"})
"""Harmless values of `load_format`. Other values make vLLM read object stores or unpickle, or come from plugins."""


def names_of(argument: str) -> Names | None:
    """Return what an engine argument's value names, such as a file; None if the argument is harmless."""
    if argument in HARMLESS:
        return None
    return next((kind for kind, words in GUARDED.items() if argument in words), Names.UNKNOWN)


def refused_argument(arguments: Mapping[str, object], typed: frozenset[str] = frozenset()) -> tuple[str, Names] | None:
    """Return the first argument that is refused, and what its value names; None if all are accepted. A risky argument
    is refused unless the user typed it or a bundled record sets it to this value. `trust_remote_code` is refused even
    if it was typed.

    `typed`: the names of the arguments that the user typed.
    """
    for name, value in arguments.items():
        if name in typed and name != "trust_remote_code":
            continue
        kind = names_of(name) or _named_inside(name, value)
        if kind is not None and not _is_bundled(name, value):
            return name, kind
    return None


def check_engine_args(spec: LoadSpec) -> None:
    """Raise VlmtuiError(BAD_ENGINE_ARGUMENT) if the spec has a size that would take all memory, or a risky argument
    that neither the user typed nor a bundled record sets. Called before every launch, for every backend."""
    from vlmtui.registry.size_limits import wrong_sizes  # not needed to start the app

    if wrong := next(wrong_sizes(spec.engine_args), ""):
        message = f"Can't load {spec.name}: an engine argument is out of range: {one_line(wrong)}."
        raise VlmtuiError(ErrorKind.BAD_ENGINE_ARGUMENT, message, hint="Correct it in the settings or in the record.")
    refused = refused_argument(spec.engine_args, frozenset(spec.typed))
    if refused is None:
        return
    name, kind = refused
    hint = typed_hint(name)
    if name == "trust_remote_code":
        hint = "Answer the question in the app, or add --trust-remote-code to a command."
    raise VlmtuiError(
        ErrorKind.BAD_ENGINE_ARGUMENT,
        f"Can't load {spec.name}: its engine argument `{name}` names {kind}, and you did not type it.",
        hint=hint,
    )


def typed_hint(name: str) -> str:
    """Return a hint for a refused argument: a similar known name, or how the user can set it."""
    known = [*HARMLESS, *(word for words in GUARDED.values() for word in words)]
    close = did_you_mean(name, known) if name not in known else ""
    return close or f"Set it yourself if you mean it: --engine-arg {name}=VALUE."


def refused_by_record(family: Family) -> tuple[str, Names] | None:
    """Return the first engine argument that a user's family record may not set, and what its value names; None if all
    are allowed."""
    tables = [*family.argument_tables]
    for route in family.routes:
        tables += [route.engine_args, {"hf_overrides": route.hf_overrides}]
    return next((refused for table in tables if (refused := refused_argument(table)) is not None), None)


def _named_inside(name: str, value: object) -> Names | None:
    """Return what the value of a generally harmless argument names; None if the value is harmless too."""
    if name == "load_format":
        return None if isinstance(value, str) and value in _LOAD_FORMATS else Names.FILE
    return None if name in _FREE_TEXT or is_plain(value) else Names.CODE


def _is_bundled(name: str, value: object) -> bool:
    """Return True if a bundled record sets this argument to this value."""
    if name == "model_class_overrides":  # made from a route's `model_class`, which can only name vlmtui's own classes
        return isinstance(value, dict) and all(str(one).startswith(OWN_CLASSES) for one in value.values())
    return (name, msgspec.json.encode(value, order="deterministic")) in _bundled_arguments()


@cache
def _bundled_arguments() -> frozenset[tuple[str, bytes]]:
    """Return every engine argument of a bundled record, with its value as JSON."""
    from vlmtui.registry.loader import bundled_tables  # which checks users' records with this module

    return frozenset(
        (name, msgspec.json.encode(value, order="deterministic"))
        for record, _ in bundled_tables().values()
        for table in _argument_tables(record)
        for name, value in table.items()
        if name != "trust_remote_code"
    )


def _argument_tables(record: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    routes = record.get("routes")
    for part in [record, *(routes if isinstance(routes, list) else [])]:
        for field in ("engine_args", "engine_args_several", "engine_args_video", "example", "example_several"):
            table = part.get(field)
            if isinstance(table, Mapping):
                yield table
