//! TRL, transformers and PEFT keys without a counterpart.

use super::draft::Draft;

/// A key that changes training, with the values that do not.
struct Missing {
    key: &'static str,
    /// Values, as JSON, that change nothing.
    neutral: &'static [&'static str],
    remedy: &'static str,
}

const fn missing(
    key: &'static str,
    neutral: &'static [&'static str],
    remedy: &'static str,
) -> Missing {
    Missing { key, neutral, remedy }
}

const MISSING: &[Missing] = &[
    missing(
        "mask_truncated_completions",
        &["false"],
        "truncated completions are trained on. If the reward returns None for them (sampling.max_new_tokens ids in completion_ids), they have no advantage, but their tokens still count in the loss's denominator, where TRL leaves them out: with two thirds truncated, gradients are a third",
    ),
    missing(
        "reward_model_name_or_path",
        &[],
        "reward models are not loaded; call the model in the Python file, or serve it and use reward.type = \"http\"",
    ),
    missing("shuffle_dataset", &["true"], "prompts are always shuffled, each once per epoch"),
    missing(
        "train_sampling_strategy",
        &["\"random\""],
        "prompts are always shuffled, each once per epoch",
    ),
    missing(
        "optim",
        &["\"adamw_torch\"", "\"adamw_torch_fused\"", "\"adamw_hf\"", "\"adamw_apex_fused\""],
        "the optimizer is always AdamW, with moments in f32",
    ),
    missing("optim_args", &[], "the optimizer is always AdamW; see [optimizer]"),
    missing("optim_target_modules", &[], "the optimizer is always AdamW; see [optimizer]"),
    missing(
        "label_smoothing_factor",
        &["0", "0.0"],
        "not available, and not used by TRL's GRPO loss",
    ),
    missing("neftune_noise_alpha", &[], "no noise is added to embeddings"),
    missing(
        "generation_kwargs",
        &["{}"],
        "set the keys that [sampling] has: temperature, top_k, top_p, min_p, repetition_penalty, stop",
    ),
    missing(
        "vllm_structured_outputs_regex",
        &[],
        "completions are not constrained; reward the form, for example with reward.type = \"pattern\"",
    ),
    missing(
        "vllm_guided_decoding_regex",
        &[],
        "completions are not constrained; reward the form, for example with reward.type = \"pattern\"",
    ),
    missing("max_tool_calling_iterations", &[], "completions cannot call tools"),
    missing("token_entropy_percentile_threshold", &["0", "0.0"], "use top_entropy_quantile in TRL"),
    missing("model_init_kwargs", &["{}"], "a model is read from its folder; see base_precision"),
    missing(
        "lora_target_parameters",
        &["[]"],
        "only linear layers and embeddings can have adapters; see lora.targets",
    ),
    missing("lora_task_type", &["\"CAUSAL_LM\""], "the policy is a causal language model"),
    missing("test_split_size", &[], "save the held-out prompts in a file and set eval.file"),
    missing("dataset_streaming", &["false"], "prompts are read into memory from data.file"),
    missing("streaming", &["false"], "prompts are read into memory from data.file"),
    missing("eval_delay", &["0", "0.0"], "the first evaluation precedes the first step"),
    missing(
        "load_best_model_at_end",
        &["false"],
        "the checkpoint of the best evaluation is kept; the model folder contains the final weights",
    ),
    missing(
        "resume_from_checkpoint",
        &[],
        "transformers checkpoints cannot be resumed; merge the weights and start from them",
    ),
    missing(
        "router_aux_loss_coef",
        &["0", "0.0", "0.001"],
        "mixture-of-experts models are not supported",
    ),
];

/// Arguments of open-r1's reward functions, which become constants of the reward file.
const OF_REWARDS: &[&str] = &[
    "code_eval_scoring_mode",
    "code_eval_test_batch_size",
    "code_language",
    "code_provider",
    "cosine_max_len",
    "cosine_max_value_correct",
    "cosine_max_value_wrong",
    "cosine_min_value_correct",
    "cosine_min_value_wrong",
    "e2b_router_url",
    "ioi_provider",
    "max_completion_len",
    "morph_router_url",
    "parallel_code_exec_per_proc",
    "repetition_max_penalty",
    "repetition_n_grams",
    "soft_punish_cache",
];

/// Keys that do not affect training, with the reasons.
const HARMLESS: &[(&str, &[&str])] = &[
    (
        "sampling is built in; to use vLLM servers, see [rollout] in docs/cluster.md",
        &[
            "use_vllm",
            "vllm_mode",
            "vllm_model_impl",
            "vllm_enable_sleep_mode",
            "vllm_enable_prefix_caching",
            "vllm_dtype",
            "vllm_device",
            "vllm_server_base_url",
            "vllm_server_host",
            "vllm_server_port",
            "vllm_server_timeout",
            "vllm_group_port",
            "vllm_gpu_memory_utilization",
            "vllm_max_model_len",
            "vllm_max_model_length",
            "vllm_tensor_parallel_size",
            "use_transformers_continuous_batching",
            "transformers_continuous_batching_config",
            "use_transformers_paged",
            "cache_implementation",
            "use_cache",
        ],
    ),
    (
        "the sampler uses the same probabilities as training, which each step checks; see [sampler_check]",
        &[
            "vllm_importance_sampling_correction",
            "vllm_importance_sampling_mode",
            "vllm_importance_sampling_clip_max",
            "vllm_importance_sampling_clip_min",
            "vllm_importance_sampling_cap",
        ],
    ),
    (
        "computation is in f32; see train.precision and docs/gpu.md",
        &[
            "bf16",
            "fp16",
            "tf32",
            "bf16_full_eval",
            "fp16_full_eval",
            "fp16_backend",
            "fp16_opt_level",
            "half_precision_backend",
            "cast_lm_head_to_fp32",
            "bnb_4bit_quant_type",
            "use_bnb_nested_quant",
            "bnb_4bit_quant_storage",
        ],
    ),
    (
        "the kernels are grpo's own; the device is chosen when grpo is built",
        &[
            "attn_implementation",
            "use_liger_kernel",
            "use_liger_loss",
            "liger_kernel_config",
            "torch_compile",
            "torch_compile_backend",
            "torch_compile_mode",
            "torch_empty_cache_steps",
            "activation_checkpointing_kwargs",
            "pad_to_multiple_of",
            "jit_mode_eval",
            "use_ipex",
            "use_cpu",
            "no_cuda",
            "use_mps_device",
            "auto_find_batch_size",
            "per_gpu_train_batch_size",
            "per_gpu_eval_batch_size",
            "tpu_num_cores",
            "tpu_metrics_debug",
            "mp_parameters",
        ],
    ),
    (
        "one process uses all cores or one GPU; training is not distributed",
        &[
            "ddp_find_unused_parameters",
            "ddp_bucket_cap_mb",
            "ddp_broadcast_buffers",
            "ddp_backend",
            "ddp_static_graph",
            "ddp_timeout",
            "fsdp",
            "fsdp_config",
            "fsdp_min_num_params",
            "fsdp_transformer_layer_cls_to_wrap",
            "deepspeed",
            "ds3_gather_for_generation",
            "local_rank",
            "accelerator_config",
            "parallelism_config",
            "average_tokens_across_devices",
            "split_batches",
            "log_on_each_node",
            "save_on_each_node",
            "ray_scope",
            "ignore_bias_buffers",
        ],
    ),
    (
        "every step is written to metrics.jsonl and for TensorBoard; `grpo report` plots it",
        &[
            "report_to",
            "run_name",
            "project",
            "trackio_space_id",
            "trackio_bucket_id",
            "trackio_static_space_id",
            "wandb_entity",
            "wandb_project",
            "wandb_run_group",
            "logging_strategy",
            "logging_steps",
            "logging_first_step",
            "logging_nan_inf_filter",
            "logging_dir",
            "log_level",
            "log_level_replica",
            "log_multimodal",
            "log_unique_prompts",
            "wandb_log_unique_prompts",
            "num_completions_to_print",
            "log_completions_hub_repo",
            "disable_tqdm",
            "include_num_input_tokens_seen",
            "include_tokens_per_second",
            "include_inputs_for_metrics",
            "include_for_metrics",
            "batch_eval_metrics",
            "skip_memory_metrics",
            "debug",
        ],
    ),
    (
        "nothing is uploaded; use `hf upload` with the model or adapter folder",
        &[
            "push_to_hub",
            "push_to_hub_model_id",
            "push_to_hub_organization",
            "push_to_hub_token",
            "hub_token",
            "hub_private_repo",
            "hub_model_id",
            "hub_strategy",
            "hub_always_push",
            "hub_revision",
            "hub_model_revision",
            "overwrite_hub_revision",
            "push_to_hub_revision",
        ],
    ),
    (
        "prompts are read once; all keys of a record are passed to the reward",
        &[
            "remove_unused_columns",
            "label_names",
            "length_column_name",
            "group_by_length",
            "dataloader_drop_last",
            "dataloader_num_workers",
            "dataloader_pin_memory",
            "dataloader_persistent_workers",
            "dataloader_prefetch_factor",
            "dataloader_in_order",
            "dataloader_multiprocessing_context",
        ],
    ),
    (
        "an evaluation precedes the first step, in batches of sampling.batch_size",
        &[
            "eval_on_start",
            "per_device_eval_batch_size",
            "eval_accumulation_steps",
            "eval_do_concat_batches",
            "eval_use_gather_object",
            "prediction_loss_only",
            "metric_for_best_model",
            "greater_is_better",
        ],
    ),
    (
        "checkpoints are complete; resume with `grpo train --resume RUN`",
        &[
            "save_only_model",
            "save_safetensors",
            "enable_jit_checkpoint",
            "ignore_data_skip",
            "restore_callback_states_from_checkpoint",
            "overwrite_output_dir",
        ],
    ),
    (
        "one seed determines all random numbers; runs are always reproducible bit for bit",
        &["data_seed", "full_determinism"],
    ),
    (
        "an option of open-r1's scripts; run the command with the saved model",
        &["benchmarks", "callbacks"],
    ),
    ("`grpo train` does not use dropout", &["disable_dropout"]),
    ("code from a model's repository is never run", &["trust_remote_code"]),
    (
        "an option of TRL's scripts",
        &["do_train", "do_eval", "do_predict", "env", "past_index", "torchdynamo"],
    ),
];

/// Reports the keys listed in this module.
pub(super) fn apply(draft: &mut Draft<'_>) {
    for Missing { key, neutral, remedy } in MISSING {
        let Some(value) = draft.given.get(key) else { continue };
        if neutral.contains(&value.to_string().as_str()) {
            draft.same(&[*key], "always the case here");
        } else {
            draft.without(&[*key], true, remedy);
        }
    }
    draft.without(
        OF_REWARDS,
        true,
        "an argument of a reward function of open-r1; write the value in the reward file",
    );
    for (reason, keys) in HARMLESS {
        draft.without(keys, false, reason);
    }
}

/// Returns whether the key is in one of the tables.
pub(super) fn is_known(key: &str) -> bool {
    MISSING.iter().any(|missing| missing.key == key)
        || OF_REWARDS.contains(&key)
        || HARMLESS.iter().any(|(_, keys)| keys.contains(&key))
}
